#pragma once
// What a file of tasks is about, without reading all of it: lm-evaluation-harness has 14,000 such
// files, and whoever names a task of one wants to wait for that one alone.
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::tasks {

struct TaskHeading {
  std::optional<std::string> task;
  std::optional<std::string> group;
  std::optional<std::vector<std::string>> tags;
  std::vector<std::string> includes;
};

/// From the lines of a YAML text that begin with these four keys. Nothing where one of them is not
/// written plainly (one word, in quotes or without, or a list of such): then only a reader of YAML
/// can tell.
std::optional<TaskHeading> scan_task_heading(std::string_view text);

/// The headings of files with what they include; each file that is included is read once. One owner
/// thread.
class HeadingReader {
 public:
  /// Nothing where the file has to be read, or cannot be.
  std::optional<TaskHeading> read(const std::filesystem::path& file);

 private:
  std::optional<TaskHeading> read_merged(const std::filesystem::path& file, int depth);

  std::map<std::filesystem::path, std::optional<TaskHeading>> included_;
};

}  // namespace atl::tasks
