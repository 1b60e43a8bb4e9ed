#include "atoll/sweep/sweep_database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/sweep/sweep_settings.h"

namespace atl::sweep {
namespace {

using nlohmann::json;

constexpr int kApplicationId = 0x41746c53;  // "AtlS", in the file's header.
constexpr int kVersion = 1;
constexpr std::array kStatusNames = {"running", "done", "failed"};

sqlite3* database(void* handle) { return static_cast<sqlite3*>(handle); }

std::string identity_text(const std::map<std::string, std::string>& identity) {
  return json(identity).dump();
}

PointStatus status_of(const std::string& name) {
  const auto found = std::ranges::find(kStatusNames, name);
  if (found == kStatusNames.end()) {
    throw InputError(fmt::format("status must be done or failed, not '{}'", name.substr(0, 40)));
  }
  return static_cast<PointStatus>(found - kStatusNames.begin());
}

}  // namespace

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

  PointRow row() const {
    PointRow row{.key = text(0),
                 .status = status_of(text(2)),
                 .loss = real(3),
                 .seconds = real(4),
                 .peak_bytes = real(5),
                 .digest = text(6),
                 .message = text(7)};
    const json identity = json::parse(text(1), nullptr, /*allow_exceptions=*/false);
    const bool has_texts =
        identity.is_object() &&
        std::ranges::all_of(identity, [](const json& one) { return one.is_string(); });
    if (!has_texts) owner_.fail("holds a point without settings");
    row.identity = identity.get<std::map<std::string, std::string>>();
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
    const int64_t program = run::number("PRAGMA application_id");
    const int64_t version = run::number("PRAGMA user_version");
    const bool is_new = run::number("SELECT count(*) FROM sqlite_master") == 0 && program == 0;
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

constexpr const char* kColumns =
    "key, identity, status, loss, seconds, peak_bytes, digest, message";

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
  Statement statement(*this, "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  statement.bind(1, row.key);
  statement.bind(2, identity_text(row.identity));
  statement.bind(3, std::string(kStatusNames.at(static_cast<size_t>(row.status))));
  statement.bind(4, row.loss);
  statement.bind(5, row.seconds);
  statement.bind(6, row.peak_bytes);
  statement.bind(7, row.digest);
  statement.bind(8, row.message);
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
    nlohmann::ordered_json line = {{"key", row.key},
                                   {"status", kStatusNames.at(static_cast<size_t>(row.status))}};
    if (row.status == PointStatus::kDone) line["loss"] = row.loss;
    line["seconds"] = row.seconds;
    line["peak_bytes"] = row.peak_bytes;
    if (!row.digest.empty()) line["digest"] = row.digest;
    if (!row.message.empty()) line["message"] = row.message;
    line["settings"] = row.identity;
    lines[row.key] = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  }
  std::string text;
  for (const auto& [key, line] : lines) text += line;
  return text;
}

namespace {

PointRow parse_point(std::string_view line) {
  const json in = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!in.is_object()) throw InputError("not a JSON object");
  PointRow row{.key = in.at("key"),
               .identity = in.at("settings").get<std::map<std::string, std::string>>(),
               .status = status_of(in.at("status")),
               .seconds = in.at("seconds"),
               .peak_bytes = in.at("peak_bytes"),
               .digest = in.value("digest", ""),
               .message = in.value("message", "")};
  if (row.status == PointStatus::kRunning) throw InputError("status must be done or failed");
  if (row.status == PointStatus::kDone) row.loss = in.at("loss");
  for (const double value : {row.loss, row.seconds, row.peak_bytes}) {
    if (!std::isfinite(value) || value < 0) throw InputError("a number is negative");
  }
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
    } catch (const json::exception& error) {
      refuse(error.what());
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
