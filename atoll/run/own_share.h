#pragma once
// What of its machine one of an island's processes takes.
#include "atoll/method/train_options.h"
#include "atoll/run/process_place.h"

namespace atl::run {

/// Threads and device, where the settings leave them open.
void take_own_share(method::TrainOptions& train, const ProcessPlace& place);

}  // namespace atl::run
