#pragma once
// OLMo's token files to a token store: raw arrays of ids without a header (*.npy), each with its
// document table (*.csv.gz) beside it, as `dolma tokens` writes them. One owner thread.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/data/npy.h"
#include "atoll/data/store_writer.h"
#include "atoll/data/token_store.h"

namespace atl::data {

/// One file of tokens, memory-mapped, and its table. Throws InputError naming the file.
class OlmoFile {
 public:
  /// `type` is that of a file without numpy's header. Throws where the size is no whole number of
  /// tokens, where a header names another type than uint16 or uint32, and where the table is
  /// missing.
  OlmoFile(std::filesystem::path path, TokenType type);

  const std::filesystem::path& path() const { return path_; }
  TokenType type() const { return type_; }
  int64_t num_tokens() const;
  /// Throws unless all ids are below `vocab_size`; names the first that is not.
  void require_ids_below(int64_t vocab_size) const;
  /// Calls `visit` for each row of the table. Throws at a gap, an overlap, or tokens past the end.
  void for_each_document(const std::function<void(const Document&)>& visit) const;
  /// Copies ids.size() tokens from `begin` on.
  void read(int64_t begin, std::span<tokenizer::TokenId> ids) const;

 private:
  std::span<const std::byte> tokens() const { return file_.bytes().subspan(data_offset_); }

  std::filesystem::path path_;
  MappedFile file_;
  TokenType type_;
  size_t data_offset_ = 0;
};

/// uint16 where the vocabulary allows, as dolma chooses.
inline TokenType narrowest_type(int64_t vocab_size) {
  return vocab_size <= (1 << 16) ? TokenType::kU16 : TokenType::kU32;
}

/// Makes a token store of the files' documents, in their order. With a validation share of 0 all of
/// them train. Throws InputError unless each document ends with the tokenizer's end-of-text, all
/// ids are below the vocabulary and all files have one type; else as StoreWriter does. `progress`
/// is told how many tokens are done.
StoreInfo import_olmo(const std::vector<OlmoFile>& files, const tokenizer::Tokenizer& tokenizer,
                      const StoreTarget& target, double validation_share,
                      const std::function<void(int64_t tokens_done)>& progress);

}  // namespace atl::data
