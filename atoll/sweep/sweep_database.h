#pragma once
// The results of a sweep: SQLite, a row for each point, found by the key of its settings. Every
// change is durable when the call returns. The open database is the lock on the sweep's folder. The
// same results as text, a line of JSON for each, can be kept in a repository. LibTorch-free. One
// owner thread.
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/fields.h"

namespace atl::sweep {

enum class PointStatus { kRunning, kDone, kFailed };
std::span<const std::string_view> names_of(PointStatus);

struct PointRow {
  std::string key;  // 64 hexadecimal digits.
  PointStatus status = PointStatus::kRunning;
  double loss = 0;                              // Nats per token, of one that is done.
  double seconds = 0;                           // That training took; 0: not known.
  double peak_bytes = 0;                        // Of all its processes; 0: not known.
  std::string digest;                           // SHA-256 of the parameters.
  std::string message;                          // Of one that failed: the last lines that it said.
  std::map<std::string, std::string> identity;  // What the key is of (sweep_settings.h).

  void visit(auto&& field) {
    field("key", key), field("status", status), field("loss", loss, MayLack{}, UpTo{kMost});
    field("seconds", seconds, UpTo{kMost}), field("peak_bytes", peak_bytes, UpTo{kMost});
    field("digest", digest, LeftOutWhenNew{}), field("message", message, LeftOutWhenNew{});
    field("settings", identity);
  }
  static constexpr double kMost = std::numeric_limits<double>::max();
  bool operator==(const PointRow&) const = default;
};

/// What import() found.
struct Imported {
  size_t added = 0;
  size_t known = 0;   // Were there with the same result.
  size_t differ = 0;  // Were there with another one, which stays.
};

/// Another process has it open.
class DatabaseInUse : public InputError {
 public:
  using InputError::InputError;
};

class SweepDatabase {
 public:
  /// Opens or makes it. Throws DatabaseInUse; InputError: it is no database, or is that of another
  /// program or version.
  explicit SweepDatabase(const std::filesystem::path& file);
  ~SweepDatabase();
  SweepDatabase(const SweepDatabase&) = delete;
  SweepDatabase& operator=(const SweepDatabase&) = delete;

  std::optional<PointRow> find(const std::string& key) const;
  /// All rows, by key.
  std::vector<PointRow> rows() const;
  /// Adds the row, or replaces the one of its key.
  void put(const PointRow& row);
  void remove(const std::string& key);

  /// Adds the finished points of a text that points_text() made; those that are there stay.
  Imported import(const std::vector<PointRow>& rows);

 private:
  class Statement;
  void run(const char* sql) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::string file_;
  void* handle_ = nullptr;  // sqlite3*
};

/// The finished points (failed ones too), sorted by key, a line of JSON each.
std::string points_text(const std::vector<PointRow>& rows);

constexpr size_t kMaxPointsBytes = size_t{1} << 30;  // Some 600,000 points.

/// Reads it again. Throws InputError naming the line: no such object, a key that is not that of the
/// settings beside it, a point told twice.
std::vector<PointRow> parse_points(std::string_view text, const std::string& where);
std::vector<PointRow> read_points(const std::filesystem::path& file);

}  // namespace atl::sweep
