#pragma once
// An island among the others of a run: one membership, and another where only that has ended.
#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/base/result.h"
#include "atoll/island/joining.h"
#include "atoll/run/progress.h"
#include "atoll/run/run_folder.h"

namespace atl::island {

/// Joins and trains to the end of the run. Fails when a peer is lost. Throws as join_run().
Result<run::Summary> take_part(const Destination& destination, const run::RunFolder& folder,
                               const Clock& clock, const ProgressCallback& on_progress,
                               const EventSink& events);

}  // namespace atl::island
