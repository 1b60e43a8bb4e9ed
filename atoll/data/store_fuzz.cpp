// store.json and the document table from strangers: read or refused with an InputError; a table
// that is read is written back as a table that reads the same.
#include <cstdint>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/data/document_table.h"
#include "atoll/data/store_files.h"
#include "atoll/testing/packed_text.h"

namespace atl::data {
namespace {

void try_description(std::string_view text) {
  try {
    const StoreInfo info = parse_store_info(text, "fuzz");
    ATOLL_CHECK(parse_store_info(format_store_info(info), "again").digest() == info.digest());
  } catch (const InputError&) {
  }
}

std::vector<Document> read_table(const std::string& text, int64_t num_tokens) {
  DocumentReader reader(source_of(text, "fuzz"), num_tokens);
  std::vector<Document> rows;
  while (auto row = reader.next()) rows.push_back(std::move(*row));
  return rows;
}

void try_table(const std::string& text, int64_t num_tokens) {
  try {
    const std::vector<Document> rows = read_table(text, num_tokens);
    std::string again;
    for (const Document& row : rows) again += format_document(row);
    ATOLL_CHECK(read_table(again, num_tokens).size() == rows.size());
  } catch (const InputError&) {
  }
}

}  // namespace
}  // namespace atl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using atl::data::Document;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  atl::data::try_description(text);
  std::string description = atl::data::format_store_info(
      {.vocab_size = 300, .tokenizer_sha256 = "t", .sources = {"corpus"}});
  if (size >= 2) description[(data[0] * 256U + data[1]) % description.size()] = text.back();
  atl::data::try_description(description);

  atl::data::try_table(std::string(text), 9);
  // A good table whose names are the input, then the same with one byte changed.
  const std::string name(text);
  std::string table = atl::data::format_document({0, 4, name, "source", 1}) +
                      atl::data::format_document({4, 9, "id", name, 2});
  const std::vector<Document> rows = atl::data::read_table(table, 9);
  ATOLL_CHECK(rows[0].id == name && rows[1].source == name);
  if (size >= 2) table[(data[0] * 256U + data[1]) % table.size()] = text.back();
  atl::data::try_table(table, 9);
  return 0;
}
