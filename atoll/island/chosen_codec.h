#pragma once
// What sync.codec = "auto" stands for: before the first step the islands measure and choose
// together, later the checkpoint says what they chose.
#include <filesystem>

#include "atoll/collective/averager.h"
#include "atoll/island/training_run.h"
#include "atoll/method/sync_options.h"

namespace atl::island {

/// By rounds among the members of `averager`, from 0 to kProbeRounds (link_probe.h), and a step's
/// time here. Throws InputError when a peer is lost.
method::SyncOptions choose_codec(const TrainingParts& parts, collective::Averager& averager);

/// What the run of this checkpoint uses.
method::SyncOptions chosen_before(method::SyncOptions options,
                                  const std::filesystem::path& checkpoint);

}  // namespace atl::island
