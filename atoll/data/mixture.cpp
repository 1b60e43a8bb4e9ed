#include "atoll/data/mixture.h"

#include <fmt/format.h>

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"
#include "atoll/base/hash.h"
#include "atoll/data/blend.h"
#include "atoll/data/store_files.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "atoll mixture";
constexpr int64_t kVersion = 1;

std::string digest_of(const std::vector<MixedStore>& stores) {
  Sha256 hash;
  hash.update(fmt::format("{} {}\n", kFormat, kVersion));
  for (const MixedStore& store : stores) {
    hash.update(fmt::format("{} {}\n", store.weight, store.digest));
  }
  return hex(hash.finish());
}

void require_mixable(const std::vector<TokenStore>& stores) {
  for (size_t i = 0; i < stores.size(); ++i) {
    const StoreInfo& info = stores[i].info();
    for (size_t j = 0; j < i; ++j) {
      const std::string both =
          fmt::format("'{}' and '{}'", stores[j].folder().string(), stores[i].folder().string());
      if (stores[j].info().tokenizer_sha256 != info.tokenizer_sha256) {
        throw InputError(
            fmt::format("{} were packed with different tokenizers, so they cannot be mixed", both));
      }
      if (stores[j].info().digest() == info.digest()) {
        throw InputError(
            fmt::format("{} are the same store: name it once, with the sum of the weights", both));
      }
    }
  }
}

}  // namespace

std::string format_mixture(const std::vector<MixedStore>& stores) {
  const Json json = {{"format", kFormat},
                     {"version", kVersion},
                     {"stores", json_of<Json>(stores)},
                     {"digest", digest_of(stores)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<MixedStore> parse_mixture(std::string_view text, const std::string& name) {
  const Json json = parse_format(text, kFormat, name);
  const auto require = [&](bool is_so, const char* what) {
    if (!is_so) throw InputError(fmt::format("'{}': {}", name, what));
  };
  const Json list = json.value("stores", Json());
  require(list.is_array() && list.size() >= 2, "\"stores\" must be a list of two or more");
  auto stores = struct_of<std::vector<MixedStore>>(list, fmt::format("'{}', stores", name));
  for (const MixedStore& store : stores) {
    require(store.weight > 0 && std::isfinite(store.weight),
            "\"weight\" must be a positive number");
  }
  require(json.value("digest", Json()) == digest_of(stores),
          "it was edited: its digest does not match its contents; make it with 'atoll data mix'");
  return stores;
}

bool holds_tokens(const fs::path& folder) {
  return fs::exists(folder / kStoreFileName) || fs::exists(folder / kMixtureFileName);
}

Mixture Mixture::open(const fs::path& folder) {
  const fs::path file = folder / kMixtureFileName;
  std::vector<TokenStore> stores;
  if (!fs::exists(file)) {
    stores.push_back(TokenStore::open(folder));
    return {folder, std::move(stores), {1.0}};
  }
  std::vector<double> weights;
  for (const MixedStore& mixed : parse_mixture(read_file(file), file.string())) {
    stores.push_back(
        TokenStore::open((fs::weakly_canonical(folder) / mixed.path).lexically_normal()));
    weights.push_back(mixed.weight);
    if (stores.back().info().digest() != mixed.digest) {
      throw InputError(
          fmt::format("'{}' is not the store that '{}' was made of: its digest differs; mix again",
                      stores.back().folder().string(), file.string()));
    }
  }
  require_mixable(stores);
  return {folder, std::move(stores), std::move(weights)};
}

std::string Mixture::digest() const {
  if (stores_.size() == 1) return stores_.front().info().digest();
  std::vector<MixedStore> mixed;
  for (size_t i = 0; i < stores_.size(); ++i) {
    mixed.push_back({.weight = weights_[i], .digest = stores_[i].info().digest()});
  }
  return digest_of(mixed);
}

Mixture mix_stores(const std::vector<std::pair<fs::path, double>>& named, const fs::path& target,
                   bool overwrite) {
  if (fs::exists(target) && !(overwrite && fs::exists(target / kMixtureFileName))) {
    throw UsageError(fmt::format("'{}' already exists; choose another name{}", target.string(),
                                 overwrite ? ", for it is no mixture" : " or pass --overwrite"));
  }
  if (named.size() < 2) throw UsageError("a mixture is made of two stores or more");
  std::vector<TokenStore> stores;
  std::vector<MixedStore> mixed;
  std::vector<double> weights;
  for (const auto& [path, weight] : named) {
    stores.push_back(TokenStore::open(path));
    weights.push_back(weight);
    mixed.push_back(
        {.path = fs::relative(fs::absolute(path), fs::absolute(target)).generic_string(),
         .weight = weight,
         .digest = stores.back().info().digest()});
    if (stores.back().num_tokens(Split::kTrain) == 0) {
      throw InputError(fmt::format("'{}' has nothing to train on", path.string()));
    }
  }
  shares_of(weights);
  require_mixable(stores);
  fs::create_directories(target);
  write_file_atomically(target / kMixtureFileName, format_mixture(mixed));
  return Mixture::open(target);
}

}  // namespace atl::data
