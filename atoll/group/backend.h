#pragma once
// The library that sums for an island's processes: Gloo. What lies on a device is brought to the
// host for it.
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "atoll/base/clock.h"
#include "atoll/group/meeting.h"
#include "atoll/run/process_place.h"

namespace atl::group {

/// Connects to all others, who are there. Throws c10::Error.
c10::intrusive_ptr<c10d::Backend> make_backend(const Store& store, const run::ProcessPlace& place,
                                               Duration patience);

}  // namespace atl::group
