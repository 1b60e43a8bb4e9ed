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

/// One per request, in their order. The longest are read first, `batch_rows` at a time; those that
/// differ in their last token alone are read once. With 0 rows batches have about 4096 tokens, and
/// a long context with several continuations is read once. `progress` (may be empty) gets the
/// number of requests done. Throws InputError when an id is not below the model's vocabulary.
std::vector<tasks::Likelihood> likelihoods(const model::Model& model,
                                           std::span<const tasks::TokenRequest> requests,
                                           int64_t batch_rows,
                                           const std::function<void(int64_t)>& progress);

}  // namespace atl::serve
