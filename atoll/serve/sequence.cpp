#include "atoll/serve/sequence.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/decoding/sampler.h"

namespace atl::serve {
namespace {

std::span<float> values_of(const at::Tensor& row) {
  return {row.mutable_data_ptr<float>(), static_cast<size_t>(row.numel())};
}

}  // namespace

at::Tensor tensor_1T(std::span<const int64_t> tokens) {
  const at::Tensor tensor =
      at::empty({1, std::ssize(tokens)}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(tokens, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

std::vector<decoding::Order> Sequence::orders(int64_t begin, int64_t end,
                                              std::span<const int64_t> /*text*/) const {
  std::vector<decoding::Order> orders;
  for (int64_t position = begin; position < end; ++position) {
    orders.push_back(position < wanted_from() ? decoding::Order() : order(position));
  }
  return orders;
}

decoding::Outcome Sequence::follow(int64_t position, const at::Tensor& row) const {
  try {
    return decoding::follow(order(position), values_of(row));
  } catch (const decoding::NotFinite&) {
    if (adapter_ == 0) throw;
    throw InputError(
        "the logits are not finite: the weights of the model, or of the adapter that reads this "
        "text, are damaged");
  }
}

Answer::Answer(Id id, decoding::GenerationRequest request, int64_t vocab_size, int64_t max_length,
               std::shared_ptr<decoding::Listener> listener)
    : Sequence(id, request.prompt, request.tenant, request.adapter),
      draw_(request, vocab_size),
      listener_(std::move(listener)),
      num_prompt_(std::ssize(request.prompt)),
      max_length_(request.max_tokens < max_length - num_prompt_ ? num_prompt_ + request.max_tokens
                                                                : max_length),
      num_top_(request.top_logprobs),
      scores_prompt_(request.scores_prompt),
      round_after_(request.round_after) {}

int64_t Answer::wanted_from() const {
  // A text may be read anew: what it was told it is not told again.
  return scores_prompt_ && !was_read_ ? std::ssize(prompt_scores_) : std::ssize(tokens()) - 1;
}

decoding::Order Answer::order(int64_t position) const {
  if (position + 1 < num_prompt_) {
    return {.wanted = decoding::Wanted::kScore,
            .id = tokens()[static_cast<size_t>(position) + 1],
            .num_top = num_top_.value_or(0)};
  }
  if (std::ssize(tokens()) >= max_length_) return {};
  return draw_.order(position + 1);
}

std::vector<decoding::Order> Answer::orders(int64_t begin, int64_t end,
                                            std::span<const int64_t> text) const {
  const int64_t length = std::ssize(tokens());
  auto orders = Sequence::orders(begin, std::min(end, length), text);
  if (end <= length) return orders;
  decoding::Draw draw = draw_;
  for (int64_t position = length; position < end; ++position) {
    decoding::Order order;
    try {
      const bool goes_on = draw.add_guess(text[static_cast<size_t>(position)]) && !draw.is_over();
      if (goes_on && position >= begin) order = draw.order(position + 1);
    } catch (const InputError&) {  // Behind a guess nothing can follow: it may be wrong.
      order = {};
    }
    if (position >= begin) orders.push_back(std::move(order));
  }
  return orders;
}

bool Answer::take(int64_t position, const decoding::Outcome& outcome) {
  const decoding::TokenScore& score = outcome.score;
  if (position + 1 < num_prompt_) {
    prompt_scores_.push_back(score);
    return false;
  }
  if (!std::exchange(was_read_, true)) {
    listener_->prompt_read(cached_, std::move(prompt_scores_));
  }
  if (std::ssize(tokens()) >= max_length_) return finish(decoding::FinishReason::kLength);
  if (draw_.is_end(score.id)) {
    listener_->ended_by(score);
    return finish(decoding::FinishReason::kStop);
  }
  append(score.id);
  draw_.add(score.id);
  if (!listener_->token(score) || draw_.is_over()) return finish(decoding::FinishReason::kStop);
  if (std::ssize(tokens()) < max_length_) return false;
  return finish(decoding::FinishReason::kLength);
}

bool Answer::suppose(int64_t id) {
  if (!supposed_) supposed_ = draw_;
  return supposed_->add_guess(id);
}

std::optional<int64_t> Answer::guess(int64_t position, const at::Tensor& row) const {
  const decoding::Draw& draw = supposed_ ? *supposed_ : draw_;
  if (draw.is_over()) return std::nullopt;
  decoding::Order order = draw.order(position);
  order.is_scored = false;
  const int64_t id = decoding::follow(order, values_of(row)).score.id;
  return draw.is_end(id) ? std::nullopt : std::optional(id);
}

bool Answer::finish(decoding::FinishReason reason) {
  listener_->finished(reason);
  return true;
}

bool Embedding::take(int64_t /*position*/, const decoding::Outcome& outcome) {
  const std::vector<float>& hidden_C = outcome.hidden_C;
  sum_C_.resize(hidden_C.size());
  for (size_t i = 0; i < hidden_C.size(); ++i) sum_C_[i] += hidden_C[i];
  if (++num_summed_ < std::ssize(tokens())) return false;
  std::vector<float> mean_C;
  for (const double sum : sum_C_) {
    if (!std::isfinite(sum)) {
      throw InputError("the model's hidden states are not finite: its weights are damaged");
    }
    mean_C.push_back(static_cast<float>(sum / static_cast<double>(num_summed_)));
  }
  listener_->embedded(std::move(mean_C));
  return true;
}

}  // namespace atl::serve
