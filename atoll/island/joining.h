#pragma once
// How an island comes to a coordinator: under which name, with what it asks for, over which lines.
// And what it takes from there: the run's settings, with this machine's own.
#include <filesystem>
#include <memory>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/collective/session.h"
#include "atoll/island/island.h"
#include "atoll/run/config.h"
#include "atoll/run/registration.h"

namespace atl::island {

/// An island keeps its name: ranks are by name, and a resumed island must get its own rows again.
/// Throws UsageError when another one is asked for.
JoinOptions with_name(JoinOptions options, const std::filesystem::path& run_folder);

/// Where the island is going, and as whom.
struct Destination {
  JoinOptions options;                            // With the coordinator's address and the name.
  std::unique_ptr<run::Certificate> certificate;  // Null: connections are in the clear.
};
/// Becomes a member by the invite, if `options` have one and the folder has no member yet. Throws
/// UsageError, and InputError when it is not let in.
Destination find_destination(JoinOptions options, const std::filesystem::path& run_folder,
                             const Clock& clock, const EventSink& events);

/// Throws UsageError when an address is none, InputError when the coordinator is not reached or
/// refuses.
std::unique_ptr<collective::Session> connect(const Destination& destination, const Clock& clock,
                                             const EventSink& events);

run::RunConfig config_of(const collective::Session& session, const JoinOptions& options);

}  // namespace atl::island
