#include "atoll/sweep/slurm_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/random.h"

namespace atl::sweep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "atoll-";
constexpr size_t kMaxPointsBytes = size_t{1} << 21;
constexpr size_t kMaxNumberBytes = 32;

/// A number in a small file, as jobs and this program write them; nothing while it is not there or
/// not complete.
std::optional<int64_t> read_number(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(kMaxNumberBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.empty() || text.back() != '\n') return std::nullopt;
  return parse_whole(std::string_view(text).substr(0, text.size() - 1));
}

/// The K of "exit-K".
std::optional<size_t> index_of(const std::string& file, std::string_view prefix, size_t count) {
  if (!file.starts_with(prefix)) return std::nullopt;
  const std::optional<int64_t> index = parse_whole(std::string_view(file).substr(prefix.size()));
  if (!index || static_cast<size_t>(*index) >= count) return std::nullopt;
  return static_cast<size_t>(*index);
}

}  // namespace

SlurmArray SlurmArray::create(const fs::path& parent, std::vector<Task> tasks,
                              std::span<const TaskCommand> commands) {
  SlurmArray array(parent / (kPrefix + random_name()));
  array.tasks_ = std::move(tasks);
  std::string ids;
  for (const Task& task : array.tasks_) ids += task.point + "\n";
  try {
    fs::create_directories(array.folder_);
    write_file_atomically(array.folder_ / "commands", array_commands(commands));
    write_file_atomically(array.script(), array_script(array.folder_, fs::current_path()));
    write_file_atomically(array.folder_ / "points", ids);
  } catch (const fs::filesystem_error& error) {
    throw InputError(
        fmt::format("cannot write '{}': {}", array.folder_.string(), error.code().message()));
  }
  return array;
}

SlurmArray SlurmArray::load(const fs::path& folder) {
  SlurmArray array(folder);
  const fs::path points = folder / "points";
  std::error_code unknown;
  if (fs::file_size(points, unknown) > kMaxPointsBytes && !unknown) {
    throw InputError(fmt::format("'{}' is too large to be a list of points", points.string()));
  }
  for (std::string& point : parse_array_points(read_file(points), points.string())) {
    array.tasks_.push_back({.point = std::move(point)});
  }
  array.job_ = read_number(folder / "job");
  array.is_stopped_ = fs::exists(folder / "stopped", unknown);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string file = entry.path().filename().string();
    if (const auto over = index_of(file, "over-", array.tasks_.size())) {
      array.tasks_[*over].is_over = true;
    }
    if (!array.job_ && index_of(file, "started-", array.tasks_.size())) {
      array.job_ = read_number(entry.path());
    }
  }
  array.read_exit_codes();
  return array;
}

std::vector<fs::path> SlurmArray::find(const fs::path& parent) {
  std::vector<fs::path> folders;
  if (!fs::exists(parent)) return folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent)) {
    const bool is_array = entry.path().filename().string().starts_with(kPrefix);
    if (is_array && entry.is_directory()) folders.push_back(entry.path());
  }
  std::ranges::sort(folders);
  return folders;
}

void SlurmArray::set_job(int64_t job) {
  job_ = job;
  write_file_atomically(folder_ / "job", fmt::format("{}\n", job));
}

int64_t SlurmArray::num_unfinished() const {
  return std::ranges::count(tasks_, false, &Task::is_over);
}

bool SlurmArray::read_exit_codes() {
  // Slurm may start a task again, which takes its exit code back.
  std::vector<std::optional<int64_t>> codes(tasks_.size());
  std::error_code gone;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_, gone)) {
    const auto index = index_of(entry.path().filename().string(), "exit-", tasks_.size());
    if (index && !tasks_[*index].is_over) codes[*index] = read_number(entry.path());
  }
  bool is_new = false;
  for (size_t i = 0; i < tasks_.size(); ++i) {
    TaskEvidence& evidence = tasks_[i].evidence;
    if (evidence.exit_code == codes[i]) continue;
    evidence.exit_code = codes[i];
    evidence.was_asked = false;
    is_new = true;
  }
  return is_new;
}

void SlurmArray::mark_over(size_t index) {
  tasks_[index].is_over = true;
  std::ofstream(folder_ / fmt::format("over-{}", index)) << '\n';
}

void SlurmArray::mark_stopped() {
  is_stopped_ = true;
  std::ofstream(folder_ / "stopped") << '\n';
}

void SlurmArray::remove() const {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace atl::sweep
