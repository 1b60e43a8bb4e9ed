#include "atoll/base/interrupt.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>

namespace atl {
namespace {

// By signal, as who insists sends the same again. A machine that shuts down tells each process of a
// group, and each parent then tells its children with another: that is one request.
std::array<std::atomic<int>, NSIG> interrupts{};
std::atomic<int> departures{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch it");

extern "C" void on_interrupt(int signal) {
  if (interrupts.at(static_cast<size_t>(signal)).fetch_add(1) >= 1) ::_exit(128 + signal);
}

extern "C" void on_terminate(int signal) {
  if (departures.fetch_add(1) >= 1) ::_exit(128 + signal);
}

}  // namespace

void leave_on_terminate() {
  struct sigaction action = {};
  action.sa_handler = on_terminate;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGTERM, &action, nullptr);
}

bool has_to_leave() { return departures.load() > 0; }

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  struct sigaction hangup = {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);  // Not under nohup.
}

InterruptsWatched::InterruptsWatched() {
  for (std::atomic<int>& count : interrupts) count = 0;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}
InterruptsWatched::~InterruptsWatched() {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
}

int num_interrupts() {
  int most = 0;
  for (const std::atomic<int>& count : interrupts) most = std::max(most, count.load());
  return most;
}

void throw_if_interrupted() {
  if (num_interrupts() > 0) throw Interrupted("interrupted");
}

}  // namespace atl
