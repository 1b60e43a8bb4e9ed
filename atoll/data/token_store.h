#pragma once
// A token store: documents as one long array of ids, packed once, then read by memory map. The
// token files are OLMo's (raw little-endian u16 or u32 without a header, a .csv.gz document table
// beside each); store.json says what is in them. docs/formats_data.md has the bytes. Written by
// data/pack.h.
//
// Reading is thread-safe. The store must outlive every Batches made from it.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/fields.h"
#include "atoll/base/file.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::data {

/// Documents are dealt to the two parts by a hash of their text, so one document never trains and
/// validates, whatever the order or the number of files.
enum class Split { kTrain, kValidation };
inline constexpr Split kSplits[] = {Split::kTrain, Split::kValidation};
std::string split_name(Split split);  // "train", "validation"

enum class TokenType { kU16, kU32 };
std::span<const std::string_view> names_of(TokenType);  // "uint16", "uint32"

/// Of tokens, documents and bytes: no product of counts overflows.
inline constexpr double kMaxCount = int64_t{1} << 56;

/// Whether a document trains or validates: the first eight bytes of the SHA-256 of its text, as a
/// little-endian share of 2^64, are compared with `validation_share`.
Split split_of(std::string_view text, double validation_share);

/// One token file.
struct SplitInfo {
  int64_t num_documents = 0;
  int64_t num_tokens = 0;  // Each document's end-of-text included.
  int64_t text_bytes = 0;  // UTF-8, end-of-text not included: for bits per byte.
  std::string tokens_sha256;
  std::string documents_sha256;  // Of the uncompressed table.

  void visit(auto&& field) {
    field("documents", num_documents), field("tokens", num_tokens);
    field("text_bytes", text_bytes), field("tokens_sha256", tokens_sha256);
    field("documents_sha256", documents_sha256);
  }
};

/// Which part of a larger store this one is (data/corpus.h says how a corpus is cut).
struct ShardInfo {
  int64_t index = 0;  // From 0.
  int64_t count = 1;
  std::string corpus_sha256;  // Corpus::fingerprint(): equal for all shards of one corpus.

  void visit(auto&& field) {
    field("index", index, UpTo{kMaxCount}), field("count", count, UpTo{kMaxCount});
    field("corpus_sha256", corpus_sha256);
  }
};

/// The contents of store.json.
struct StoreInfo {
  int64_t vocab_size = 0;
  TokenType type = TokenType::kU16;
  std::string tokenizer_sha256;
  int64_t end_of_text = 0;
  double validation_share = 0;
  std::vector<std::string> sources;  // What was packed, as the user named it.
  SplitInfo train;
  SplitInfo validation;
  std::optional<ShardInfo> shard;  // Of a store that is to be merged with others.

  void visit(auto&& field) {  // Without the shard, which the file has behind its digest.
    field("vocab_size", vocab_size, UpTo{kMaxCount}), field("dtype", type);
    field("tokenizer_sha256", tokenizer_sha256), field("end_of_text", end_of_text);
    field("validation_share", validation_share, UpTo{1}), field("sources", sources);
    field("train", train, UpTo{kMaxCount}), field("validation", validation, UpTo{kMaxCount});
  }
  const SplitInfo& split(Split which) const { return which == Split::kTrain ? train : validation; }
  /// SHA-256 in hexadecimal of everything that decides a batch: islands that agree on it read the
  /// same tokens.
  std::string digest() const;
};

/// A row of the document table.
struct Document {
  int64_t begin = 0;  // First token in the token file.
  int64_t end = 0;    // One past its last token, which is end-of-text.
  std::string id;
  std::string source;    // The file it came from.
  int64_t location = 0;  // Line (jsonl) or number of the document in that file, from 1.
};

class TokenStore {
 public:
  /// Opens a folder written by `atoll data pack`. Throws InputError (which file, what is wrong)
  /// when something is missing, truncated or contradicts store.json. Takes milliseconds at any
  /// size.
  static TokenStore open(const std::filesystem::path& folder);

  const StoreInfo& info() const { return info_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// The store's own copy of the tokenizer it was packed with.
  std::filesystem::path tokenizer_file() const { return folder_ / "tokenizer.json"; }
  /// Throws InputError unless the store was packed with exactly this tokenizer.
  void require_tokenizer(const tokenizer::Tokenizer& tokenizer) const;

  int64_t num_tokens(Split split) const { return info_.split(split).num_tokens; }
  /// Copies ids.size() tokens from `begin` on. Throws InputError at an id over the vocabulary.
  void read(Split split, int64_t begin, std::span<int64_t> ids) const;
  /// Asks the system to bring these into memory, if they are not there: read() then waits for no
  /// disk. Returns at once.
  void will_read(Split split, int64_t begin, int64_t count) const;
  /// The document table (read from disk at each call). Throws InputError naming the row when it
  /// does not describe the tokens, or is not the one that store.json names.
  std::vector<Document> documents(Split split) const;
  /// The same a row at a time, whose memory does not grow with the table.
  void for_each_document(Split split, const std::function<void(const Document&)>& visit) const;
  /// Throws InputError unless the tokens have the SHA-256 of store.json.
  void require_tokens_intact(Split split) const;
  /// Reads everything: digests, ids below vocab_size, tables that tile the tokens, documents that
  /// end with end-of-text and lie in their part, bytes of text. `sources` and `shard` cannot be
  /// checked; neither can the parts and the bytes of text where the tokenizer does not keep texts
  /// as they are. Throws InputError naming the first fault.
  void verify() const;

 private:
  TokenStore(std::filesystem::path folder, StoreInfo info, MappedFile train, MappedFile validation);
  std::span<const std::byte> bytes(Split split) const;
  int64_t verify_documents(Split split, const tokenizer::Tokenizer& tokenizer) const;

  std::filesystem::path folder_;
  StoreInfo info_;
  MappedFile train_;
  MappedFile validation_;
};

}  // namespace atl::data
