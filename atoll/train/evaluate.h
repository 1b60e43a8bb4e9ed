#pragma once
// How well a model predicts: the mean loss over a store's rows, and token by token for one text.
// No gradients; the caller's thread.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "atoll/data/batches.h"
#include "atoll/model/kernels.h"
#include "atoll/model/model.h"
#include "atoll/train/learner.h"

namespace atl::train {

/// The mean cross entropy in nats per predicted token over `num_rows` rows (at most all), spread
/// evenly over the split so that a few long documents do not stand for all, `batch_rows` at a time.
double mean_loss(const model::Model& model, const data::Batches& rows, int64_t sequence_length,
                 int64_t num_rows, int64_t batch_rows);
/// The same by whoever has a batch's mean cross entropy.
double mean_loss(const std::function<double(const Batch&)>& cross_entropy,
                 const data::Batches& rows, int64_t sequence_length, int64_t num_rows,
                 int64_t batch_rows);

/// How a model saw one token of a text.
struct TokenScore {
  double log_probability = 0;  // Natural logarithm.
  int64_t rank = 1;            // 1 + how many tokens have a larger logit: 1 is the likeliest.
};

/// How the model saw each of `targets`, in any order; their rows are those of hidden_TC. Each row
/// goes through the head once, however many are asked for behind it. Throws InputError when an id
/// is not below the model's vocabulary.
std::vector<TokenScore> score_targets(const model::Model& model, const at::Tensor& hidden_TC,
                                      std::span<const model::RowTarget> targets);

/// One entry per id; empty for the first, which nothing precedes. A text longer than `window` is
/// read in windows that begin `stride` tokens after each other; a token is scored in the first
/// window that holds it, so beyond the first window at least window - stride tokens precede each.
/// 0 < stride < window <= ModelConfig::context(). `progress` (may be empty) gets the number of
/// tokens done. Throws InputError when an id is not below the model's vocabulary.
std::vector<std::optional<TokenScore>> score_tokens(const model::Model& model,
                                                    std::span<const int64_t> ids, int64_t window,
                                                    int64_t stride,
                                                    const std::function<void(int64_t)>& progress);

}  // namespace atl::train
