#pragma once
// Where a watcher's stage begins and ends in a pass: what it is told on the way forwards as the
// pass comes by, and on the way back by autograd, which does nothing else there.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "atoll/model/pass_watcher.h"

namespace atl::model {

/// `x`, which the stage reads next. Without a watcher (null) nothing happens, as in the next one.
/// It outlives the graph.
at::Tensor enter_stage(PassWatcher* watcher, int64_t stage, const at::Tensor& x);
/// `y`, which the stage has made.
at::Tensor leave_stage(PassWatcher* watcher, int64_t stage, const at::Tensor& y);

}  // namespace atl::model
