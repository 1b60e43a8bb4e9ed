#pragma once
// Ctrl-C, SIGTERM and a closed terminal: the first asks politely (the run checkpoints and ends),
// the second of the same kind ends now.

#include "atoll/base/error.h"

namespace atl {

constexpr int kInterruptedStatus = 130;  // Its exit code.
/// The user asked to stop in the middle of something that cannot be kept.
class Interrupted : public InputError {
 public:
  using InputError::InputError;
};

/// Installs the handlers; call once, early in main's thread.
void watch_interrupts();
/// Watches for Ctrl-C alone while it lives: for a part of the work that can be given up. Behind it
/// Ctrl-C ends the program again.
class InterruptsWatched {
 public:
  InterruptsWatched();
  ~InterruptsWatched();
  InterruptsWatched(const InterruptsWatched&) = delete;
  InterruptsWatched& operator=(const InterruptsWatched&) = delete;
};
/// How often the user asked to stop; signals of several kinds are one request.
int num_interrupts();
/// From here on SIGTERM does not count as one: it asks this process alone to leave what it takes
/// part in, in good order (has_to_leave()). Twice ends it.
void leave_on_terminate();
bool has_to_leave();
/// For work that leaves nothing behind when an exception ends it. Throws Interrupted.
void throw_if_interrupted();

}  // namespace atl
