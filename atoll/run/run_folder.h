#pragma once
// A run directory: who may use it, and which settings it was started with. LibTorch-free.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "atoll/run/config.h"

namespace atl::run {

/// Holds the directory until destroyed; no other process may. A new directory into which nothing
/// was written (but events) goes again.
class RunFolder {
 public:
  /// Creates the directory if need be; an empty path stands for a new "runs/<date>-<time>". Throws
  /// InputError when another process holds it or it cannot be written, UsageError when it holds
  /// something else than a run.
  explicit RunFolder(std::filesystem::path path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

  /// Writes config.toml: all settings, with their help.
  void save(RunConfig& config) const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
  bool created_ = false;
};

/// A run is called as its folder is: "runs/ours/" and "." have a last part too.
std::string name_of_run(const std::filesystem::path& folder);

/// Whether the run in `folder` has a checkpoint, of its own or of its islands. From then on it
/// keeps its settings, its data and its islands' names; before, a mistake can be mended.
bool was_started(const std::filesystem::path& folder);

/// The settings of the run in `folder`: if it was started, those of its config.toml (`file` and
/// `overrides` may only repeat them, local settings apart), else `file` and `overrides`;
/// sync.method is chosen. Writes nothing. Throws UsageError naming the setting that differs.
RunConfig configure(const std::filesystem::path& folder, const std::filesystem::path& file,
                    const std::vector<std::string>& overrides);

/// Throws UsageError when the run in `folder` was started with other settings (local ones apart),
/// naming the first that differs.
void require_same(const std::filesystem::path& folder, RunConfig& config);
/// The same of two texts of all shared settings, by name.
void require_same(const std::filesystem::path& folder,
                  const std::map<std::string, std::string>& before,
                  const std::map<std::string, std::string>& now);

/// The word as a shell takes it.
std::string shell_quoted(const std::string& word);

/// "atoll train --islands 2 --run 'runs/a b'": what resumes a run; quoted for a shell. A run does
/// not keep its link rate (empty: unlimited).
std::string resume_command(const std::filesystem::path& folder, int64_t islands,
                           const std::string& link_rate = {});

}  // namespace atl::run
