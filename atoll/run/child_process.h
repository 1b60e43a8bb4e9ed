#pragma once
// A child process with its stdout in a pipe and its stderr in a file. It dies with its parent. Only
// for single-threaded programs without LibTorch. LibTorch-free.
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace atl::run {

enum class Log { kBegins, kGoesOn };  // Whether what an earlier process said is kept.

class ChildProcess {
 public:
  /// It and its children may use `cpus` alone; empty: as its parent. Throws InputError when it
  /// cannot be started.
  ChildProcess(const std::vector<std::string>& command, const std::filesystem::path& log,
               Log how = Log::kBegins, const std::vector<int>& cpus = {});
  /// Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// The read end of its stdout, non-blocking; -1 once it was closed.
  int output() const { return output_; }
  /// Whole lines that arrived since the last call.
  std::vector<std::string> read_lines();
  void signal(int number) const;
  /// Its exit status (128 + signal if killed), nothing while it runs.
  std::optional<int> poll_exit();
  /// Whether a signal ended it; a program that says 128 + signal has ended by itself.
  bool was_killed() const { return was_killed_; }
  const std::filesystem::path& log() const { return log_; }

 private:
  std::filesystem::path log_;
  pid_t pid_ = -1;
  int output_ = -1;
  std::string partial_;
  std::optional<int> status_;
  bool was_killed_ = false;
};

/// The last `count` lines of a log, for an error message.
std::string last_lines(const std::filesystem::path& log, size_t count);

}  // namespace atl::run
