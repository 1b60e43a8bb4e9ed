#include "atoll/tables/table_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "atoll/base/error.h"

extern char** environ;

namespace atl::tables {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSaid = 2000;

/// Reads up to the other's end; what is behind `max_bytes` is left. Whether that was all.
bool read_all(int file, std::string& text, size_t max_bytes) {
  std::array<char, 1 << 16> buffer{};
  while (true) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    if (text.size() + static_cast<size_t>(count) > max_bytes) return false;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

struct Started {
  pid_t id = -1;
  int output = -1;
  int errors = -1;
};

Started start(const fs::path& program, const fs::path& file) {
  std::array<int, 2> output{};
  std::array<int, 2> errors{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0 || ::pipe2(errors.data(), O_CLOEXEC) != 0) {
    throw InputError(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
  const std::string name = program;
  const std::string path = file;
  const std::array<char*, 3> words = {const_cast<char*>(name.c_str()),
                                      const_cast<char*>(path.c_str()), nullptr};
  Started started{.id = -1, .output = output[0], .errors = errors[0]};
  const int failed =
      ::posix_spawn(&started.id, name.c_str(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(output[1]);
  ::close(errors[1]);
  if (failed != 0) {
    ::close(output[0]);
    ::close(errors[0]);
    throw InputError(fmt::format(
        "'{}' needs Arrow's libraries: '{}', which reads such files, cannot be started ({}); "
        "install PyPI pyarrow beside LibTorch (`pip install pyarrow`) or Debian's libparquet-dev "
        "and "
        "build again, or write the documents as lines of JSON",
        path, name, std::strerror(failed)));
  }
  return started;
}

}  // namespace

std::string read_lines(const fs::path& file, const fs::path& program, size_t max_bytes) {
  const Started started = start(program, file);
  std::string said;
  std::string lines;
  bool fits = false;
  {
    // Beside the lines, as a full pipe of complaints would stop the program.
    const std::jthread listener([&] { read_all(started.errors, said, size_t{1} << 20); });
    fits = read_all(started.output, lines, max_bytes);
    if (!fits) ::kill(started.id, SIGKILL);
    ::close(started.output);  // Who still writes to it ends.
  }
  ::close(started.errors);
  int status = 0;
  while (::waitpid(started.id, &status, 0) < 0 && errno == EINTR) continue;
  if (!fits) {
    throw InputError(fmt::format("'{}' is over {} bytes when unpacked", file.string(), max_bytes));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return lines;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  if (said.size() > kMaxSaid) said.resize(kMaxSaid);
  if (said.empty() && WIFSIGNALED(status)) {
    said = fmt::format("{} was killed by signal {}", program.string(), WTERMSIG(status));
  }
  throw InputError(fmt::format("'{}': {}", file.string(), said));
}

fs::path table_program() {
  return fs::read_symlink("/proc/self/exe").parent_path() / "atoll-tables";
}

}  // namespace atl::tables
