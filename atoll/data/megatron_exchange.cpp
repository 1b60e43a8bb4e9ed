#include "atoll/data/megatron_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"

namespace atl::data {
namespace {

void require_importable(const MegatronStore& from) {
  const MegatronIndex& index = from.index();
  const std::string name = from.idx_path().string();
  if (index.type != NumberType::kU16 && index.type != NumberType::kI32) {
    throw InputError(fmt::format("'{}' has tokens of {}; token stores are made of uint16 or int32",
                                 name, number_name(index.type)));
  }
  if (!index.is_one_to_one()) {
    throw InputError(
        fmt::format("'{}' has {} sequences in {} documents; token stores are made of "
                    "documents of one sequence each",
                    name, index.num_sequences(), index.num_documents()));
  }
}

}  // namespace

StoreInfo import_megatron(const MegatronStore& from, const tokenizer::Tokenizer& tokenizer,
                          const StoreTarget& target, double validation_share,
                          const TokenProgress& progress) {
  require_importable(from);
  from.require_ids_below(tokenizer.vocab_size());
  const MegatronIndex& index = from.index();
  const bool is_narrow = index.type == NumberType::kU16;
  StoreWriter writer(target, tokenizer,
                     {.type = is_narrow ? TokenType::kU16 : TokenType::kU32,
                      .validation_share = validation_share,
                      .sources = {from.prefix()}});
  const tokenizer::TokenId end_of_text = tokenizer.end_of_text();
  const std::string name = std::filesystem::path(from.prefix()).filename().string();
  std::vector<int64_t> wide;
  std::vector<tokenizer::TokenId> ids;
  int64_t tokens_done = 0;
  for (int64_t i = 0; i < index.num_sequences(); ++i) {
    wide.resize(static_cast<size_t>(index.sizes[static_cast<size_t>(i)]));
    from.read(i, 0, wide);
    if (wide.empty() || wide.back() != end_of_text) {
      throw InputError(
          fmt::format("'{}': document {} does not end with end-of-text ({}): it was packed without "
                      "--append-eod, or with another tokenizer",
                      from.bin_path().string(), i, end_of_text));
    }
    ids.assign(wide.begin(), wide.end());
    const std::string text =
        tokenizer.decode(std::span<const tokenizer::TokenId>(ids).first(ids.size() - 1));
    writer.add({.split = split_of(text, validation_share),
                .text_bytes = std::ssize(text),
                .id = fmt::format("{}:{}", name, i + 1),
                .source = from.prefix(),
                .location = i + 1},
               ids);
    tokens_done += std::ssize(ids);
    progress(tokens_done);
    throw_if_interrupted();  // The draft goes.
  }
  return writer.finish();
}

MegatronWriter::Hashes export_megatron(const TokenStore& from, Split split,
                                       const std::string& prefix, bool overwrite,
                                       const TokenProgress& progress) {
  if (from.info().split(split).num_documents == 0) {
    throw InputError(
        fmt::format("the {} part of '{}' is empty", split_name(split), from.folder().string()));
  }
  const bool is_narrow = from.info().type == TokenType::kU16;
  MegatronWriter writer(prefix, is_narrow ? NumberType::kU16 : NumberType::kI32, overwrite);
  std::vector<int64_t> ids;
  for (const Document& document : from.documents(split)) {
    ids.resize(static_cast<size_t>(document.end - document.begin));
    from.read(split, document.begin, ids);
    writer.add(ids);
    progress(document.end);
    throw_if_interrupted();  // The drafts go.
  }
  return writer.finish();
}

}  // namespace atl::data
