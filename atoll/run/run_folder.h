#pragma once
// A run directory: who may use it, and which settings it was started with. LibTorch-free.
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/run/config.h"

namespace atl::run {

/// Holds the directory (created if need be) until destroyed; no other process may.
class RunFolder {
 public:
  /// Throws InputError when another process holds it or it cannot be written.
  explicit RunFolder(std::filesystem::path path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

  /// The settings of the run in this directory: those of its config.toml if it was started before
  /// (then `overrides` and `file` may only repeat them, local settings apart), else `file` and the
  /// overrides. Throws UsageError naming the setting that differs.
  RunConfig configure(const std::filesystem::path& file, const std::vector<std::string>& overrides);
  /// Throws UsageError when the run was started with other settings (local ones apart), naming the
  /// first that differs.
  void require_same(RunConfig& config) const;
  /// Writes config.toml: all settings, with their help.
  void save(RunConfig& config) const;
  bool was_started() const;

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

/// "runs/2026-11-21-093015": the directory of a run that was given none.
std::filesystem::path default_run_folder();

}  // namespace atl::run
