#pragma once
// The document table beside a token file: OLMo's .csv.gz with one row per document,
// start,end,id,src,loc (token positions, end exclusive), no header row. Parsing bounds everything
// by what store.json promises. Pure functions but for the two that name a file.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/token_store.h"

namespace atl::data {

/// One row with its line end; fields with a comma, quote or line break are quoted (RFC 4180).
std::string format_document(const Document& document);

/// The table's rows. Throws InputError naming `name` and the row unless the rows tile
/// [0, num_tokens) and number `num_documents`.
std::vector<Document> parse_documents(std::string_view text, int64_t num_documents,
                                      int64_t num_tokens, const std::string& name);

/// Gzip with a fixed header, so equal tables are equal files; synced to disk.
void write_gzip(const std::filesystem::path& file, std::string_view text);
/// Throws InputError when damaged, followed by anything, or over `max_bytes` when unpacked.
std::string read_gzip(const std::filesystem::path& file, size_t max_bytes);

}  // namespace atl::data
