#include "atoll/run/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "atoll/base/error.h"

namespace atl::run {

ChildProcess::ChildProcess(const std::vector<std::string>& command,
                           const std::filesystem::path& log, Log how, const std::vector<int>& cpus)
    : log_(log) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int keep = how == Log::kGoesOn ? O_APPEND : O_TRUNC;
  const int log_file = ::open(log.c_str(), O_WRONLY | O_CREAT | keep | O_CLOEXEC, 0644);
  std::array<int, 2> pipe_ends{};
  if (log_file < 0 || ::pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    throw InputError(fmt::format("cannot start '{}' with log '{}': {}", command[0], log.string(),
                                 std::strerror(errno)));
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  for (const int cpu : cpus) CPU_SET(cpu, &allowed);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    // A group of its own: Ctrl-C reaches only the parent, which decides what the children are told.
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    if (!cpus.empty()) ::sched_setaffinity(0, sizeof(allowed), &allowed);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    ::dup2(pipe_ends[1], STDOUT_FILENO);
    ::dup2(log_file, STDERR_FILENO);
    ::execv(arguments[0], arguments.data());
    ::dprintf(STDERR_FILENO, "cannot execute %s: %s\n", arguments[0], std::strerror(errno));
    ::_exit(127);
  }
  ::close(log_file);
  ::close(pipe_ends[1]);
  output_ = pipe_ends[0];
  ::fcntl(output_, F_SETFL, O_NONBLOCK);
  if (pid_ < 0) throw InputError(fmt::format("cannot start a process: {}", std::strerror(errno)));
}

ChildProcess::~ChildProcess() {
  if (output_ >= 0) ::close(output_);
  if (pid_ > 0 && !poll_exit()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

std::vector<std::string> ChildProcess::read_lines() {
  std::vector<std::string> lines;
  std::array<char, 4096> buffer;
  while (output_ >= 0) {
    const ssize_t got = ::read(output_, buffer.data(), buffer.size());
    if (got < 0) {
      if (errno == EINTR) continue;
      break;
    }
    if (got == 0) {
      ::close(output_);
      output_ = -1;
      break;
    }
    partial_.append(buffer.data(), static_cast<size_t>(got));
  }
  size_t begin = 0;
  for (size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(partial_.substr(begin, end - begin));
  }
  partial_.erase(0, begin);
  return lines;
}

void ChildProcess::signal(int number) const {
  if (!status_) ::kill(pid_, number);
}

std::optional<int> ChildProcess::poll_exit() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    was_killed_ = !WIFEXITED(status);
    status_ = was_killed_ ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return status_;
}

std::string last_lines(const std::filesystem::path& log, size_t count) {
  std::ifstream in(log);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
    if (lines.size() > count) lines.erase(lines.begin());
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

}  // namespace atl::run
