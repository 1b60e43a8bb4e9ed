// atoll-wan-link: a small wide-area network inside one machine, for tests and benchmarks. See
// star.h for what it emulates and wan.py for how it is used.
//
//   atoll-wan-link [--seed N] [--mtu BYTES] --host NAME[,key=value...] --host NAME...
//
// Makes one namespace per host and prints one line of JSON: their addresses and namespaces. Then it
// answers each line of stdin by one of stdout. It ends at the end of stdin (whoever started it is
// gone), at SIGTERM and at SIGINT, and ends every process in its namespaces first.
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "star.h"

namespace atl::wan {
namespace {

constexpr int kNiceness = -10;  // On time although the processes inside fill the cores.
constexpr size_t kMaxLineBytes = 4096;

struct Arguments {
  std::vector<HostOptions> hosts;
  uint64_t seed = 1;
  int mtu = 1500;
};

template <class Integer>
Integer integer(const std::string& option, const std::string& text, Integer min, Integer max) {
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    throw UsageError(fmt::format("{} {}: must be from {} to {}", option, text, min, max));
  }
  return value;
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) throw UsageError(fmt::format("'{}' needs a value", words[i]));
    const std::string& value = words[i + 1];
    if (words[i] == "--seed") {
      arguments.seed = integer<uint64_t>("--seed", value, 0, UINT64_MAX);
    } else if (words[i] == "--mtu") {
      arguments.mtu = integer<int>("--mtu", value, 576, 65000);
    } else if (words[i] == "--host") {
      const size_t comma = value.find(',');
      HostOptions host{.name = value.substr(0, comma)};
      if (host.name.empty()) throw UsageError("--host needs a name");
      if (comma != std::string::npos) apply_settings(host, value.substr(comma + 1));
      arguments.hosts.push_back(std::move(host));
    } else {
      throw UsageError(fmt::format("unknown option '{}': --host, --seed, --mtu", words[i]));
    }
  }
  return arguments;
}

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto of = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return of(use.ru_utime) + of(use.ru_stime);
}

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

/// Reads commands and answers them. False at the end of stdin.
bool answer_commands(Star& star, std::string& pending) {
  char chunk[kMaxLineBytes];
  const ssize_t size = read(STDIN_FILENO, chunk, sizeof chunk);
  if (size <= 0) return false;
  pending.append(chunk, static_cast<size_t>(size));
  for (size_t end = 0; (end = pending.find('\n')) != std::string::npos; pending.erase(0, end + 1)) {
    print_line(star.execute(pending.substr(0, end), cpu_seconds()));
  }
  if (pending.size() > kMaxLineBytes) throw UsageError("a command is too long");
  return true;
}

void run(const Arguments& arguments) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  const Descriptor signals(signalfd(-1, &stop, SFD_NONBLOCK | SFD_CLOEXEC));
  setpriority(PRIO_PROCESS, 0, kNiceness);
  const SystemClock clock;
  Star star(arguments.hosts, arguments.seed, arguments.mtu);
  std::vector<pollfd> polled;
  for (const int device : star.devices()) polled.push_back({device, POLLIN, 0});
  polled.push_back({signals.get(), POLLIN, 0});
  polled.push_back({STDIN_FILENO, POLLIN, 0});
  print_line(star.execute("hosts", 0));
  std::string pending;
  while (true) {
    const auto next = star.step(clock);
    timespec wait{.tv_sec = 1, .tv_nsec = 0};
    if (next) {
      // Waking for each packet would take the cores from those whose line this is. Without delays
      // nobody sleeps: even no time at all would be some 50 us.
      const timespec tick{.tv_sec = 0, .tv_nsec = star.tick().count()};
      if (tick.tv_nsec > 0) nanosleep(&tick, nullptr);
      const int64_t ns = std::clamp<int64_t>((*next - clock.now()).count(), 0, 999'999'999);
      wait = {.tv_sec = 0, .tv_nsec = ns};
    }
    if (ppoll(polled.data(), polled.size(), &wait, nullptr) <= 0) continue;
    if (polled[polled.size() - 2].revents != 0) return;
    if (polled.back().revents != 0 && !answer_commands(star, pending)) return;
  }
}

}  // namespace
}  // namespace atl::wan

int main(int argc, char** argv) {
  try {
    atl::wan::run(atl::wan::parse({argv + 1, argv + argc}));
    return 0;
  } catch (const atl::UsageError& error) {
    fmt::print(stderr, "atoll-wan-link: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "atoll-wan-link: {}\n", error.what());
    return 1;
  }
}
