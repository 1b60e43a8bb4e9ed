#include "atoll/decoding/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::decoding {

TokenScore score_of(std::span<const float> logits_V, int64_t id, int64_t num_top) {
  ATOLL_CHECK(id >= 0 && id < std::ssize(logits_V) && num_top >= 0);
  const double largest = *std::ranges::max_element(logits_V);
  double sum = 0;
  for (const float logit : logits_V) sum += std::exp(logit - largest);
  const double log_sum = largest + std::log(sum);
  TokenScore score{.id = id, .logprob = logits_V[static_cast<size_t>(id)] - log_sum, .top = {}};
  if (num_top == 0) return score;
  std::vector<int64_t> ids(logits_V.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<int64_t>(num_top, std::ssize(ids));
  std::ranges::partial_sort(ids, end, [&](int64_t a, int64_t b) {
    const float of_a = logits_V[static_cast<size_t>(a)];
    const float of_b = logits_V[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  for (auto it = ids.begin(); it != end; ++it) {
    score.top.emplace_back(*it, logits_V[static_cast<size_t>(*it)] - log_sum);
  }
  return score;
}

Draw::Draw(const GenerationRequest& request, int64_t vocab_size)
    : sampler_(request.sampler),
      ends_(request.ends),
      bias_(request.logit_bias),
      num_top_(request.top_logprobs),
      seen_(vocab_size) {
  check(sampler_);
  const auto require = [&](int64_t id, const char* what) {
    if (id >= 0 && id < vocab_size) return;
    throw InputError(
        fmt::format("{} has the id {}, and the model's ids are below {}", what, id, vocab_size));
  };
  for (const int64_t id : request.prompt) {
    require(id, "the prompt");
    seen_.add(id);
  }
  for (const auto& [id, bias] : bias_) require(id, "logit_bias");
  if (request.grammar == nullptr) return;
  if (static_cast<int64_t>(request.grammar->vocabulary().size()) != vocab_size) {
    throw InputError(fmt::format("the grammar is for {} ids, and the model has {}",
                                 request.grammar->vocabulary().size(), vocab_size));
  }
  matcher_.emplace(request.grammar);
}

bool Draw::is_end(int64_t id) const { return std::ranges::find(ends_, id) != ends_.end(); }

bool Draw::add_guess(int64_t id) {
  if (is_end(id)) return false;
  if (matcher_ && !matcher_->advance(static_cast<grammar::TokenId>(id))) return false;
  seen_.add_made(id);
  return true;
}

void Draw::add(int64_t id) {
  const bool is_taken = add_guess(id);
  ATOLL_CHECK(is_taken, "a token that the grammar does not allow");
}

bool Draw::is_over() const {
  return matcher_ && matcher_->may_end() && matcher_->place().tops.empty();
}

TokenScore Draw::next(std::span<float> logits_V, int64_t position) const {
  std::vector<float> own;  // The score is the model's, before what changes its logits here.
  if (num_top_) own.assign(logits_V.begin(), logits_V.end());
  const int64_t id = choose(logits_V, position);
  return num_top_ ? score_of(own, id, *num_top_) : TokenScore{.id = id};
}

int64_t Draw::choose(std::span<float> logits_V, int64_t position) const {
  for (const auto& [id, bias] : bias_) logits_V[static_cast<size_t>(id)] += bias;
  seen_.penalise(logits_V, sampler_);
  std::optional<grammar::TokenMask> allowed;
  if (matcher_) allowed = matcher_->mask();
  if (allowed && allowed->count() == 0) {
    throw InputError("no token of the model's vocabulary goes on as the answer's grammar demands");
  }
  return sample(logits_V, sampler_, position, allowed ? &*allowed : nullptr);
}

}  // namespace atl::decoding
