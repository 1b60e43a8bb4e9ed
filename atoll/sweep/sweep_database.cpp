#include "atoll/sweep/sweep_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <set>
#include <type_traits>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"
#include "atoll/sweep/sweep_settings.h"

namespace atl::sweep {
namespace {

using nlohmann::json;

constexpr int kApplicationId = 0x41746c53;  // "AtlS", in the file's header.
constexpr int kVersion = 1;
constexpr std::array<std::string_view, 3> kStatusNames = {"running", "done", "failed"};
/// In the order of PointRow's fields.
constexpr const char* kColumns =
    "key, status, loss, seconds, peak_bytes, digest, message, identity";

sqlite3* database(void* handle) { return static_cast<sqlite3*>(handle); }

}  // namespace

std::span<const std::string_view> names_of(PointStatus) { return kStatusNames; }

/// One prepared statement; columns and parameters are counted from 0 and 1, as SQLite does.
class SweepDatabase::Statement {
 public:
  Statement(const SweepDatabase& owner, const char* sql) : owner_(owner) {
    if (::sqlite3_prepare_v2(database(owner.handle_), sql, -1, &statement_, nullptr) != SQLITE_OK) {
      owner.fail("cannot be read");
    }
  }
  ~Statement() { ::sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int place, const std::string& text) {
    ::sqlite3_bind_text(statement_, place, text.data(), static_cast<int>(text.size()),
                        SQLITE_TRANSIENT);
  }
  void bind(int place, double value) { ::sqlite3_bind_double(statement_, place, value); }
  /// Whether there is a row.
  bool step() {
    const int code = ::sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) owner_.fail("cannot be used");
    return code == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* bytes = ::sqlite3_column_text(statement_, column);
    return bytes == nullptr ? "" : reinterpret_cast<const char*>(bytes);
  }
  double real(int column) const { return ::sqlite3_column_double(statement_, column); }
  int64_t whole(int column) const { return ::sqlite3_column_int64(statement_, column); }

  void bind(const PointRow& row) {
    int place = 0;
    visit_fields(row, [&]<typename T>(const char*, const T& value, const auto&...) {
      if constexpr (std::same_as<T, PointStatus>) {
        bind(++place, std::string(names_of(value)[static_cast<size_t>(value)]));
      } else if constexpr (std::is_class_v<T> && !std::same_as<T, std::string>) {
        bind(++place, json(value).dump());
      } else {
        bind(++place, value);
      }
    });
  }
  PointRow row() const {
    PointRow row;
    int column = 0;
    visit_fields(row, [&]<typename T>(const char* name, T& value, const auto&...) {
      if constexpr (std::same_as<T, double>) {
        value = real(column);
      } else {
        constexpr bool kIsMap = std::is_class_v<T> && !std::same_as<T, std::string>;
        const json in = kIsMap ? json::parse(text(column), nullptr, /*allow_exceptions=*/false)
                               : json(text(column));
        value = struct_of<T>(
            in, fmt::format("the sweep's database '{}', {} of a point", owner_.file_, name));
      }
      ++column;
    });
    return row;
  }

 private:
  const SweepDatabase& owner_;
  sqlite3_stmt* statement_ = nullptr;
};

/// So long a report may have it open, which is over soon; a sweep has it longer.
constexpr int kReportMs = 1500;

SweepDatabase::SweepDatabase(const std::filesystem::path& file) : file_(file.string()) {
  sqlite3* opened = nullptr;
  const int code = ::sqlite3_open_v2(file_.c_str(), &opened,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  handle_ = opened;
  try {
    if (code != SQLITE_OK) fail("cannot be opened");
    ::sqlite3_busy_timeout(opened, kReportMs);
    // In this mode the file stays locked until it is closed, or its process ends.
    run("PRAGMA locking_mode = EXCLUSIVE");
    run("BEGIN EXCLUSIVE");
    const auto number = [this](const char* sql) {
      Statement statement(*this, sql);
      return statement.step() ? statement.whole(0) : 0;
    };
    const int64_t program = number("PRAGMA application_id");
    const int64_t version = number("PRAGMA user_version");
    const bool is_new = number("SELECT count(*) FROM sqlite_master") == 0 && program == 0;
    if (!is_new && program != kApplicationId) {
      throw InputError(
          fmt::format("'{}' is the database of another program; choose another --folder", file_));
    }
    if (!is_new && version != kVersion) {
      throw InputError(
          fmt::format("'{}' is the database of another version of Atoll ({}, this one has {}); use "
                      "that one, or "
                      "choose another --folder and --import its points.jsonl",
                      file_, version, kVersion));
    }
    run("CREATE TABLE IF NOT EXISTS points (key TEXT PRIMARY KEY, identity TEXT NOT NULL, status "
        "TEXT "
        "NOT NULL, loss REAL, seconds REAL, peak_bytes REAL, digest TEXT, message TEXT)");
    run(fmt::format("PRAGMA application_id = {}", kApplicationId).c_str());
    run(fmt::format("PRAGMA user_version = {}", kVersion).c_str());
    run("COMMIT");
    run("PRAGMA journal_mode = WAL");
    run("PRAGMA synchronous = FULL");
  } catch (...) {
    ::sqlite3_close(opened);
    throw;
  }
}

SweepDatabase::~SweepDatabase() { ::sqlite3_close(database(handle_)); }

void SweepDatabase::fail(const std::string& what) const {
  const int code = ::sqlite3_errcode(database(handle_)) & 0xff;
  if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
    throw DatabaseInUse(fmt::format(
        "the sweep's database '{}' is in use by another process; wait for it, look with --report, "
        "or choose another --folder",
        file_));
  }
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
    const auto kept = std::filesystem::path(file_).parent_path() / "points.jsonl";
    throw InputError(fmt::format(
        "'{}' is no database, or a damaged one; delete it, and {}, or choose another --folder",
        file_,
        std::filesystem::exists(kept)
            ? fmt::format("the finished points are taken over from '{}'", kept.string())
            : "the sweep begins anew (--import takes points over)"));
  }
  throw InputError(fmt::format("the sweep's database '{}' {}: {}", file_, what,
                               ::sqlite3_errmsg(database(handle_))));
}

void SweepDatabase::run(const char* sql) const {
  if (::sqlite3_exec(database(handle_), sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    fail("cannot be used");
  }
}

std::optional<PointRow> SweepDatabase::find(const std::string& key) const {
  const std::string sql = fmt::format("SELECT {} FROM points WHERE key = ?", kColumns);
  Statement statement(*this, sql.c_str());
  statement.bind(1, key);
  if (!statement.step()) return std::nullopt;
  return statement.row();
}

std::vector<PointRow> SweepDatabase::rows() const {
  const std::string sql = fmt::format("SELECT {} FROM points ORDER BY key", kColumns);
  Statement statement(*this, sql.c_str());
  std::vector<PointRow> rows;
  while (statement.step()) rows.push_back(statement.row());
  return rows;
}

void SweepDatabase::put(const PointRow& row) {
  const std::string sql =
      fmt::format("INSERT OR REPLACE INTO points ({}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", kColumns);
  Statement statement(*this, sql.c_str());
  statement.bind(row);
  statement.step();
}

void SweepDatabase::remove(const std::string& key) {
  Statement statement(*this, "DELETE FROM points WHERE key = ?");
  statement.bind(1, key);
  statement.step();
}

Imported SweepDatabase::import(const std::vector<PointRow>& rows) {
  Imported imported;
  run("BEGIN");
  for (const PointRow& row : rows) {
    const auto known = find(row.key);
    // One that failed once may be under way again.
    if (!known || (known->status != PointStatus::kDone && row.status == PointStatus::kDone)) {
      put(row);
      ++imported.added;
    } else {
      const bool is_same = known->status == row.status && known->loss == row.loss;
      ++(is_same || known->status == PointStatus::kRunning ? imported.known : imported.differ);
    }
  }
  run("COMMIT");
  return imported;
}

std::string points_text(const std::vector<PointRow>& rows) {
  std::map<std::string, std::string> lines;
  for (const PointRow& row : rows) {
    if (row.status == PointStatus::kRunning) continue;
    auto line = json_of<nlohmann::ordered_json>(row);
    if (row.status != PointStatus::kDone) line.erase("loss");
    lines[row.key] = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  std::string text;
  for (const auto& [key, line] : lines) text += line;
  return text;
}

namespace {

PointRow parse_point(std::string_view line) {
  const json in = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!in.is_object()) throw InputError("it is no JSON object");
  const json status = in.value("status", json());
  if (status != "done" && status != "failed") {
    throw InputError(
        fmt::format("status must be done or failed, not {}", status.dump().substr(0, 40)));
  }
  if (status == "done" && !in.contains("loss")) throw InputError("it has no 'loss'");
  PointRow row;
  read_json(in, row, Lacking::kRefused);
  if (row.status == PointStatus::kFailed) row.loss = 0;
  if (key_of(row.identity) != row.key) {
    throw InputError("its key is not that of its settings; was it edited?");
  }
  return row;
}

}  // namespace

std::vector<PointRow> parse_points(std::string_view text, const std::string& where) {
  if (text.size() > kMaxPointsBytes) {
    throw InputError(fmt::format("{}: larger than {} MiB", where, kMaxPointsBytes >> 20));
  }
  std::vector<PointRow> rows;
  std::set<std::string> keys;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto refuse = [&](const std::string& what) {
      throw InputError(fmt::format("{}, line {}: {}; it is no line of a sweep's points.jsonl",
                                   where, number, what));
    };
    try {
      rows.push_back(parse_point(line));
    } catch (const InputError& error) {
      refuse(error.what());
    }
    if (!keys.insert(rows.back().key).second) refuse("the same point as in an earlier line");
  }
  return rows;
}

std::vector<PointRow> read_points(const std::filesystem::path& file) {
  std::error_code error;
  const auto size = std::filesystem::file_size(file, error);
  if (!error && size > kMaxPointsBytes) {
    throw InputError(fmt::format("{}: larger than {} MiB", file.string(), kMaxPointsBytes >> 20));
  }
  return parse_points(read_file(file), file.string());
}

}  // namespace atl::sweep
