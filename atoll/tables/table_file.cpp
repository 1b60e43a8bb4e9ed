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
#include <future>
#include <optional>

#include "atoll/base/descriptor.h"
#include "atoll/base/error.h"
#include "atoll/base/process.h"

extern char** environ;

namespace atl::tables {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSaid = 4096;  // Of complaints.

/// Reads up to the other's end. What is behind `max_bytes` is left out of the text, and whether all
/// fitted is returned: at once, or where the other must be able to go on, at its end.
enum class Excess { kStop, kPass };
bool read_all(int file, std::string& text, size_t max_bytes, Excess excess) {
  std::array<char, 1 << 16> buffer{};
  bool fits = true;
  while (true) {
    const ssize_t count = ::read(file, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return fits;
    if (count < 0) throw InputError(fmt::format("cannot read a pipe: {}", std::strerror(errno)));
    fits = fits && text.size() + static_cast<size_t>(count) <= max_bytes;
    if (fits) text.append(buffer.data(), static_cast<size_t>(count));
    if (!fits && excess == Excess::kStop) return false;
  }
}

struct Pipe {
  Pipe() : Pipe(opened()) {}
  Descriptor output, input;

 private:
  static std::array<int, 2> opened() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) == 0) return ends;
    throw InputError(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  }
  explicit Pipe(const std::array<int, 2>& ends) : output(ends[0]), input(ends[1]) {}
};

/// The program that reads a table, as long as it runs: it does not outlive this.
class Reader {
 public:
  Reader(const fs::path& program, const fs::path& file) {
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, lines_.input.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, complaints_.input.get(), STDERR_FILENO);
    const std::string name = program;
    const std::string path = file;
    const std::array<char*, 3> words = {const_cast<char*>(name.c_str()),
                                        const_cast<char*>(path.c_str()), nullptr};
    const int failed = ::posix_spawn(&id_, name.c_str(), &actions, nullptr, words.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    lines_.input = {};
    complaints_.input = {};
    if (failed == 0) return;
    id_ = -1;
    throw InputError(fmt::format(
        "'{}' needs Arrow's libraries: '{}', which reads such files, cannot be started ({}); "
        "install PyPI pyarrow beside LibTorch (`pip install pyarrow`) and build again, or write "
        "the documents as lines of JSON",
        path, name, std::strerror(failed)));
  }
  ~Reader() {
    stop();
    if (id_ > 0) wait();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  int lines() const { return lines_.output.get(); }
  int complaints() const { return complaints_.output.get(); }
  void stop() const {
    if (id_ > 0) ::kill(id_, SIGKILL);
  }
  /// As waitpid() gives it; nothing where somebody else has taken it.
  std::optional<int> wait() {
    int status = 0;
    pid_t done = -1;
    do {
      done = ::waitpid(id_, &status, 0);
    } while (done < 0 && errno == EINTR);
    const bool is_known = done == id_;
    id_ = -1;
    return is_known ? std::optional(status) : std::nullopt;
  }

 private:
  Pipe lines_, complaints_;
  pid_t id_ = -1;
};

}  // namespace

std::string read_lines(const fs::path& file, const fs::path& program, size_t max_bytes) {
  Reader reader(program, file);
  std::string said;
  std::string lines;
  // Beside the lines, as a full pipe of complaints would stop the program.
  auto complaints = std::async(
      std::launch::async, [&] { read_all(reader.complaints(), said, kMaxSaid, Excess::kPass); });
  bool fits = false;
  try {
    fits = read_all(reader.lines(), lines, max_bytes, Excess::kStop);
  } catch (...) {
    reader.stop();  // Else it, and whoever hears its complaints, would wait for ever.
    throw;
  }
  if (!fits) reader.stop();
  complaints.get();
  const std::optional<int> status = reader.wait();
  if (!fits) {
    throw InputError(fmt::format("'{}' is over {} bytes when unpacked", file.string(), max_bytes));
  }
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return lines;
  while (!said.empty() && said.back() == '\n') said.pop_back();
  if (said.empty()) {
    const std::string how = status && WIFSIGNALED(*status)
                                ? fmt::format("was killed by signal {}", WTERMSIG(*status))
                                : "failed";
    said = fmt::format("{} {}", program.string(), how);
  }
  throw InputError(fmt::format("'{}': {}", file.string(), said));
}

fs::path table_program() { return sibling_program("atoll-tables"); }

}  // namespace atl::tables
