#pragma once
// `atoll status --events`: what happened in a run, from the files of events in its folder.
#include <filesystem>

#include "atoll/base/clock.h"

namespace atl::cli {

/// Waits; false once the user asked to stop.
bool sleep_for(double seconds, const Clock& clock);

/// Prints the events that were kept in `folder` and in its islands' folders below it, in the order
/// of their times: time, island and sentence, or as lines of JSON. With `watch` (seconds) also what
/// comes, until Ctrl-C. Throws InputError where there are none.
void print_events(const std::filesystem::path& folder, bool as_json, double watch);

}  // namespace atl::cli
