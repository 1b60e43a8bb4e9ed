#include "atoll/data/olmo_exchange.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/data/document_table.h"
#include "atoll/data/store_files.h"

namespace atl::data {
namespace {

namespace fs = std::filesystem;

NumberType number_type(TokenType type) {
  return type == TokenType::kU16 ? NumberType::kU16 : NumberType::kU32;
}

fs::path table_of(const fs::path& tokens) { return fs::path(tokens).replace_extension(".csv.gz"); }

}  // namespace

OlmoFile::OlmoFile(fs::path path, TokenType type)
    : path_(std::move(path)), file_(path_), type_(type) {
  const std::string name = path_.string();
  if (has_npy_magic(file_.bytes())) {  // Someone wrote it with numpy.save.
    const NpyHeader header = parse_npy_header(file_.bytes(), name);
    const bool is_wide = header.type == NumberType::kU32;
    if ((!is_wide && header.type != NumberType::kU16) || header.is_matrix) {
      throw InputError(
          fmt::format("'{}' has {} numbers of {}; tokens are uint16 or uint32, in one dimension",
                      name, header.shape(), number_name(header.type)));
    }
    type_ = is_wide ? TokenType::kU32 : TokenType::kU16;
    data_offset_ = header.data_offset;
  }
  if (tokens().size() % token_bytes(type_) != 0) {
    throw InputError(
        fmt::format("'{}' has {} bytes, which are no whole number of {} tokens: it was truncated, "
                    "or is of another --dtype",
                    name, tokens().size(), number_name(number_type(type_))));
  }
  if (!fs::exists(table_of(path_))) {
    throw InputError(fmt::format("'{}' is missing: the document table of '{}' lies beside it",
                                 table_of(path_).string(), name));
  }
}

int64_t OlmoFile::num_tokens() const {
  return static_cast<int64_t>(tokens().size() / token_bytes(type_));
}

void OlmoFile::require_ids_below(int64_t vocab_size) const {
  with_numbers(number_type(type_), tokens(), [&](const auto& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (i % (size_t{1} << 24) == 0) throw_if_interrupted();
      if (static_cast<int64_t>(numbers[i]) < vocab_size) continue;
      throw InputError(
          fmt::format("'{}' token {} is {}, but the vocabulary has {}: it was made with another "
                      "tokenizer, or is of another --dtype than {}",
                      path_.string(), i, numbers[i], vocab_size, number_name(number_type(type_))));
    }
  });
}

void OlmoFile::for_each_document(const std::function<void(const Document&)>& visit) const {
  DocumentReader rows(ByteSource(table_of(path_)), num_tokens());
  while (const auto document = rows.next()) visit(*document);
}

void OlmoFile::read(int64_t begin, std::span<tokenizer::TokenId> ids) const {
  with_numbers(number_type(type_), tokens(), [&](const auto& numbers) {
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<tokenizer::TokenId>(numbers[static_cast<size_t>(begin) + i]);
    }
  });
}

StoreInfo import_olmo(const std::vector<OlmoFile>& files, const tokenizer::Tokenizer& tokenizer,
                      const StoreTarget& target, double validation_share,
                      const std::function<void(int64_t tokens_done)>& progress) {
  StoreInfo info{.type = files.front().type(), .validation_share = validation_share};
  for (const OlmoFile& file : files) {
    if (file.type() != info.type) {
      throw InputError(fmt::format("'{}' and '{}' have tokens of different types",
                                   files.front().path().string(), file.path().string()));
    }
    file.require_ids_below(tokenizer.vocab_size());
    info.sources.push_back(file.path().string());
  }
  StoreWriter writer(target, tokenizer, info);
  std::vector<tokenizer::TokenId> ids;
  int64_t tokens_done = 0;
  for (const OlmoFile& file : files) {
    int64_t number = 0;
    file.for_each_document([&](const Document& row) {
      ++number;
      ids.resize(static_cast<size_t>(row.end - row.begin));
      file.read(row.begin, ids);
      if (ids.back() != tokenizer.end_of_text()) {
        throw InputError(
            fmt::format("'{}': document {} does not end with end-of-text ({}): it was made with "
                        "another tokenizer",
                        file.path().string(), number, tokenizer.end_of_text()));
      }
      const std::string text =
          tokenizer.decode(std::span<const tokenizer::TokenId>(ids).first(ids.size() - 1));
      writer.add({.split = split_of(text, validation_share),
                  .text_bytes = std::ssize(text),
                  .id = row.id,
                  .source = row.source,
                  .location = row.location},
                 ids);
      progress(tokens_done += std::ssize(ids));
      throw_if_interrupted();  // The draft goes.
    });
  }
  return writer.finish();
}

}  // namespace atl::data
