#pragma once
// The document table beside a token file: OLMo's .csv.gz with one row per document,
// start,end,id,src,loc (token positions, end exclusive), no header row. Read and written row by
// row, so memory does not grow with the number of documents. One owner thread.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/base/hash.h"
#include "atoll/data/draft_file.h"
#include "atoll/data/line_reader.h"
#include "atoll/data/token_store.h"

namespace atl::data {

/// One row with its line end; fields with a comma, quote or line break are quoted (RFC 4180).
std::string format_document(const Document& document);

/// A table being written. Gzip with a fixed header, and packed in pieces of a fixed size: equal
/// tables are equal files.
class DocumentWriter {
 public:
  explicit DocumentWriter(const std::filesystem::path& file);
  ~DocumentWriter();
  void add(const Document& document);
  /// Syncs; returns the SHA-256 of the unpacked table in hexadecimal.
  std::string finish();

 private:
  struct Gzip;
  void flush(bool is_last);

  HashedFile file_;
  std::unique_ptr<Gzip> gzip_;
  Sha256 hash_;
  std::string rows_;
};

/// Checks that the rows tile the tokens: none overlap, no gaps between them, none reaches past the
/// end. Every complaint is an InputError that names the file and the row.
class DocumentReader {
 public:
  /// `num_tokens` are in the file that the table describes.
  DocumentReader(ByteSource source, int64_t num_tokens);
  /// The next row; nothing after the last one, when all tokens have a document. Rows may lack id,
  /// src and loc together.
  std::optional<Document> next();

  int64_t num_documents() const { return num_documents_; }
  /// SHA-256 in hexadecimal of the table as it was read; once next() gave nothing.
  std::string sha256() { return hex(hash_.finish()); }

 private:
  LineReader lines_;
  int64_t num_tokens_;
  int64_t position_ = 0;
  int64_t num_documents_ = 0;
  Sha256 hash_;
  std::string row_;
  std::string line_;
};

}  // namespace atl::data
