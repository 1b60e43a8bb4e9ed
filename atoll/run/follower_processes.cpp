#include "atoll/run/follower_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/run/process_listener.h"
#include "atoll/run/process_place.h"

namespace atl::run {
namespace {

[[noreturn]] void fail(const char* what) {
  throw InputError(fmt::format("cannot {}: {}", what, std::strerror(errno)));
}

/// Open already, so that nobody else can take the port.
ProcessListener listen_here() {
  const auto listener = listen_for_processes("127.0.0.1", 0);
  if (!listener) fail("open a port for this island's processes to meet at");
  return *listener;
}

void set(const char* name, int64_t value) {
  ::setenv(name, fmt::format("{}", value).c_str(), /*overwrite=*/1);
}

void set_rank(int64_t rank) {
  set("RANK", rank);
  set("LOCAL_RANK", rank);
}

[[noreturn]] void become_follower(const std::string& program, char** argv, int64_t rank,
                                  pid_t parent, int listener) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  ::close(listener);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  set_rank(rank);
  ::execv(program.c_str(), argv);
  ::dprintf(STDERR_FILENO, "cannot execute %s: %s\n", program.c_str(), std::strerror(errno));
  ::_exit(127);
}

}  // namespace

void start_followers(const std::string& program, char** argv, int64_t num_processes) {
  const ProcessListener listener = listen_here();
  const pid_t self = ::getpid();
  set("WORLD_SIZE", num_processes);
  set("LOCAL_WORLD_SIZE", num_processes);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  set("MASTER_PORT", listener.port);
  // Other users of this machine reach the port too; what is there they do not find without it.
  ::setenv(std::string(kKeyVariable).c_str(), (random_name() + random_name()).c_str(), 1);
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  ::unsetenv("TORCHELASTIC_RESTART_COUNT");
  for (int64_t rank = 1; rank < num_processes; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) become_follower(program, argv, rank, self, listener.socket);
    if (child < 0) fail("start another process of this island");
  }
  set_rank(0);
  set(std::string(kListenerVariable).c_str(), listener.socket);
}

}  // namespace atl::run
