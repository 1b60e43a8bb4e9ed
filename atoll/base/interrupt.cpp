#include "atoll/base/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace atl {
namespace {

std::atomic<int> interrupts{0};
std::atomic<int> departures{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may touch it");

extern "C" void on_interrupt(int signal) {
  if (interrupts.fetch_add(1) >= 1) ::_exit(128 + signal);
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
  interrupts = 0;
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

int num_interrupts() { return interrupts.load(); }

void throw_if_interrupted() {
  if (num_interrupts() > 0) throw Interrupted("interrupted");
}

}  // namespace atl
