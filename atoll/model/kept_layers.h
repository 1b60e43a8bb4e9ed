#pragma once
// A smaller model made of some of another's layers: where one begins that is to learn from it.
#include <cstdint>
#include <span>

#include "atoll/model/model.h"

namespace atl::model {

/// The model with these of its layers alone, in their order; all else, and each layer's window, is
/// as it was. `source` has all its weights in one buffer. Throws UsageError where the layers are
/// not increasing numbers of its own, or its family cannot say what remains.
Model with_layers(const Model& source, std::span<const int64_t> layers);

}  // namespace atl::model
