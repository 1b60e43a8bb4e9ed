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

void on_signal(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void leave_on_terminate() { on_signal(SIGTERM, on_terminate); }

bool has_to_leave() { return departures.load() > 0; }

void watch_interrupts() {
  on_signal(SIGINT, on_interrupt);
  on_signal(SIGTERM, on_interrupt);
  struct sigaction hangup = {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) on_signal(SIGHUP, on_interrupt);  // Not under nohup.
}

InterruptsWatched::InterruptsWatched() {
  for (std::atomic<int>& count : interrupts) count = 0;
  on_signal(SIGINT, on_interrupt);
}
InterruptsWatched::~InterruptsWatched() { on_signal(SIGINT, SIG_DFL); }

int num_interrupts() {
  int most = 0;
  for (const std::atomic<int>& count : interrupts) most = std::max(most, count.load());
  return most;
}

void throw_if_interrupted() {
  if (num_interrupts() > 0) throw Interrupted("interrupted");
}

}  // namespace atl
