#include "atoll/data/merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::data {
namespace {

std::string name_of(const TokenStore& store) { return store.folder().string(); }

[[noreturn]] void refuse(const TokenStore& a, const TokenStore& b, const std::string& what) {
  throw InputError(fmt::format("'{}' and '{}' {}", name_of(a), name_of(b), what));
}

void require_alike(const TokenStore& a, const TokenStore& b) {
  const StoreInfo& left = a.info();
  const StoreInfo& right = b.info();
  if (left.tokenizer_sha256 != right.tokenizer_sha256) {
    refuse(a, b, "were packed with different tokenizers");
  }
  if (left.type != right.type) refuse(a, b, "have tokens of different sizes (dtype)");
  if (left.validation_share != right.validation_share) {
    refuse(a, b,
           fmt::format("have different validation shares, {} and {}", left.validation_share,
                       right.validation_share));
  }
  if (left.shard.has_value() != right.shard.has_value()) {
    refuse(a, b, "do not go together: one of them is a shard of a corpus");
  }
  if (!left.shard) return;
  if (left.shard->corpus_sha256 != right.shard->corpus_sha256 || left.sources != right.sources) {
    refuse(a, b, "are shards of different corpora, or its files have changed between them");
  }
  if (left.shard->count != right.shard->count) {
    refuse(a, b,
           fmt::format("were cut differently, into {} and {} shards", left.shard->count,
                       right.shard->count));
  }
}

void put_in_order(std::vector<TokenStore>& shards) {
  const auto index = [](const TokenStore& store) { return store.info().shard->index; };
  std::sort(shards.begin(), shards.end(),
            [&](const TokenStore& a, const TokenStore& b) { return index(a) < index(b); });
  const int64_t count = shards.front().info().shard->count;
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (i > 0 && at < shards.size() && index(shards[at]) == i - 1) {
      refuse(shards[at - 1], shards[at], fmt::format("are both shard {} of {}", i - 1, count));
    }
    if (at >= shards.size() || index(shards[at]) != i) {
      throw InputError(fmt::format(
          "shard {0} of {1} is missing: pack it with --shard {0}/{1}, and name all {1}", i, count));
    }
  }
  if (std::cmp_greater(shards.size(), count)) {
    refuse(shards[shards.size() - 2], shards.back(),
           fmt::format("are both shard {} of {}", count - 1, count));
  }
}

void require_different(const std::vector<TokenStore>& stores) {
  for (size_t i = 0; i < stores.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (stores[i].info().digest() == stores[j].info().digest()) {
        refuse(stores[j], stores[i], "are the same store: its documents would be there twice");
      }
    }
  }
}

}  // namespace

StoreInfo merge_stores(std::vector<TokenStore> stores, const StoreTarget& target,
                       const std::function<void(int64_t tokens_done)>& progress) {
  ATOLL_CHECK(!stores.empty());
  for (const TokenStore& store : stores) require_alike(stores.front(), store);
  const StoreInfo first = stores.front().info();
  StoreInfo info{.type = first.type, .validation_share = first.validation_share};
  if (first.shard) {
    put_in_order(stores);
    info.sources = first.sources;
  } else {
    require_different(stores);
    for (const TokenStore& store : stores) {
      info.sources.insert(info.sources.end(), store.info().sources.begin(),
                          store.info().sources.end());
    }
  }
  const tokenizer::Tokenizer tokenizer =
      tokenizer::Tokenizer::load(stores.front().tokenizer_file());
  StoreWriter writer(target, tokenizer, info);
  int64_t tokens_before = 0;
  for (const TokenStore& store : stores) {
    writer.append(store, [&](int64_t tokens_done) { progress(tokens_before + tokens_done); });
    tokens_before += store.num_tokens(Split::kTrain) + store.num_tokens(Split::kValidation);
  }
  return writer.finish();
}

}  // namespace atl::data
