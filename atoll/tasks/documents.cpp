#include "atoll/tasks/documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "atoll/base/error.h"
#include "atoll/data/byte_source.h"
#include "atoll/tables/table_file.h"
#include "atoll/tasks/data_folder.h"
#include "atoll/text/json_text.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{4} << 30;

void append_rows(std::string_view text, const std::string& name, std::vector<Json>& rows) {
  const auto append = [&](Json row, const std::string& where) {
    if (!row.is_object()) throw InputError(fmt::format("{}: not a JSON object", where));
    rows.push_back(std::move(row));
  };
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '[') {
    Json list = text::parse_json<Json>(text, fmt::format("'{}'", name));
    for (size_t i = 0; i < list.size(); ++i) {
      append(std::move(list[i]), fmt::format("'{}', document {}", name, i));
    }
    return;
  }
  int64_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("'{}', line {}", name, number);
    append(text::parse_json<Json>(line, where), where);
  }
}

/// Gives all rows the same fields.
Documents unified(std::vector<Json> rows, const std::string& name) {
  if (rows.empty()) throw InputError(fmt::format("'{}' has no documents", name));
  Documents documents;
  std::map<std::string, bool, std::less<>> has_broken;  // By field: a number that is not whole.
  for (const Json& row : rows) {
    for (const auto& [key, value] : row.items()) {
      const auto [place, is_new] = has_broken.emplace(key, false);
      if (is_new) documents.fields.push_back(key);
      place->second = place->second || value.is_number_float();
    }
  }
  for (Json& row : rows) {
    Json full = Json::object();
    for (const std::string& field : documents.fields) {
      Json& value = full[field];
      if (const auto found = row.find(field); found != row.end()) value = std::move(*found);
      if (has_broken[field] && value.is_number_integer()) value = value.get<double>();
    }
    documents.rows.push_back(std::move(full));
  }
  return documents;
}

std::string unpacked(const fs::path& file) {
  if (is_table(file)) return tables::read_lines(file, tables::table_program(), kMaxBytes);
  data::ByteSource source(file);
  std::string text;
  std::vector<char> buffer(size_t{1} << 18);
  while (const size_t count = source.read(buffer)) {
    if (text.size() + count > kMaxBytes) {
      throw InputError(
          fmt::format("'{}' is over {} bytes when unpacked", file.string(), kMaxBytes));
    }
    text.append(buffer.data(), count);
  }
  return text;
}

}  // namespace

Documents parse_documents(std::string_view text, const std::string& name) {
  std::vector<Json> rows;
  append_rows(text, name, rows);
  return unified(std::move(rows), name);
}

Documents read_documents(const std::vector<fs::path>& files) {
  std::vector<Json> rows;
  for (const fs::path& file : files) {
    append_rows(unpacked(file), file.string(), rows);
  }
  return unified(std::move(rows), files.empty() ? "" : files.front().string());
}

}  // namespace atl::tasks
