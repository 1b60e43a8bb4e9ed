#pragma once
// Where a watcher's part begins and ends in a pass: what it is told on the way forwards as the pass
// comes by, and on the way back by autograd, which does nothing else there.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "atoll/model/pass_watcher.h"

namespace atl::model {

/// `x`, which the part reads next. Without a watcher (null) nothing happens, as in the next one. It
/// outlives the graph.
at::Tensor enter_part(PassWatcher* watcher, int64_t part, const at::Tensor& x);
/// `y`, which the part has made.
at::Tensor leave_part(PassWatcher* watcher, int64_t part, const at::Tensor& y);

}  // namespace atl::model
