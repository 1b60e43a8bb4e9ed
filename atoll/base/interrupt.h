#pragma once
// Ctrl-C, SIGTERM and a closed terminal: the first asks politely (the run checkpoints and ends),
// the second ends now.

namespace atl {

/// Installs the handlers; call once, early in main's thread.
void watch_interrupts();
/// How often the user asked to stop.
int num_interrupts();

}  // namespace atl
