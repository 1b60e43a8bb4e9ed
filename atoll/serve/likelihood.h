#pragma once
// A model's likelihoods for many requests at once. No gradients; the caller's thread.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "atoll/model/model.h"
#include "atoll/tasks/metrics.h"
#include "atoll/tasks/requests.h"

namespace atl::serve {

/// Gets how many tokens the model has read, and will have; may be empty.
using Progress = std::function<void(int64_t done, int64_t all)>;

/// One per request, in their order. The longest are read first. A beginning that several share is
/// read once, so are those that differ in their last token alone, and the head sees only what is
/// scored. With `batch_rows` texts are read by themselves, so many at a time; with 0 about 4096
/// tokens are. Throws InputError when an id is not below the model's vocabulary.
std::vector<tasks::Likelihood> likelihoods(const model::Model& model,
                                           std::span<const tasks::TokenRequest> requests,
                                           int64_t batch_rows, const Progress& progress);

}  // namespace atl::serve
