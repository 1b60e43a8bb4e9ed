#pragma once
// By which angles keys turn in each kind of a model's layers, for those who undo it.
#include <ATen/core/Tensor.h>

#include <optional>

#include "atoll/model/attention.h"
#include "atoll/weights/config.h"

namespace atl::model {

/// The model's in its layers with a window; nothing where they turn as the others do.
std::optional<Rotary> local_rotary(const weights::ModelConfig& config, at::Device device);

}  // namespace atl::model
