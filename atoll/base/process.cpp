#include "atoll/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "atoll/base/error.h"

namespace atl {

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string sibling_program(const std::string& name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

void prepare_process() {
  // Each connection is a descriptor, and the usual limit is few of them.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  // Memory holds keys. One byte is no room for a core, and a program that the system would give it
  // to instead of a file gets none either.
  rlimit core{};
  if (::getrlimit(RLIMIT_CORE, &core) == 0) {
    core.rlim_cur = std::min<rlim_t>(core.rlim_max, 1);
    ::setrlimit(RLIMIT_CORE, &core);
  }
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    // The lowest free number is given: the closed stream's own.
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != stream) std::abort();
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

void yield_to_others() {
  // Linux takes 0 for the calling thread. Refused it does no harm.
  std::ignore = ::setpriority(PRIO_PROCESS, 0, 19);
}

void flush_standard_output() {
  errno = EIO;  // If only an earlier write failed: its own reason is no longer known.
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return;
  const int reason = errno;
  throw InputError(fmt::format("cannot write standard output: {}", std::strerror(reason)));
}

}  // namespace atl
