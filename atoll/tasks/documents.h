#pragma once
// The documents that a task asks about: lines of JSON, or one JSON array, plain, gzip or zstd;
// Arrow and Parquet files where Atoll was built with Arrow's libraries.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/tasks/json.h"

namespace atl::tasks {

/// One split as Hugging Face's `datasets` gives it: every document has every field, in the order of
/// their first appearance, null where its file leaves it out; where a field holds whole and broken
/// numbers, all are broken.
struct Documents {
  std::vector<std::string> fields;
  std::vector<Json> rows;  // Objects.
};

/// Throws InputError with the line (or place) where something is not a JSON object; at a file
/// without documents; at one over 4 GiB when unpacked.
Documents read_documents(const std::vector<std::filesystem::path>& files);
/// The same from a text; `name` appears in messages.
Documents parse_documents(std::string_view text, const std::string& name);

}  // namespace atl::tasks
