#pragma once
// How dear an error in a key or value is: the second moments of the gradients that the loss of what
// follows has with respect to them. What follows is drawn by the model itself, so that these are
// the curvature of the divergence that an error causes (Fisher's information).
//
// Shapes: L = layers, C = channels of a plane.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "atoll/model/model.h"

namespace atl::kv_model {

struct Sensitivity {
  /// (L, C, C) in double: means over tokens, of keys before they are turned, and of values.
  at::Tensor keys_LCC, values_LCC;
};

/// Of texts whose first `prefix` tokens are the ones with keys and values, and the others what
/// follows. The model was made for training; its gradients are not of use afterwards. `done` (may
/// be empty) is called behind each text.
Sensitivity measure_sensitivity(model::Model& model, std::span<const std::vector<int64_t>> texts,
                                int64_t prefix, uint64_t seed, const std::function<void()>& done);

}  // namespace atl::kv_model
