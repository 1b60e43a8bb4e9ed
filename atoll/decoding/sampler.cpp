#include "atoll/decoding/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::decoding {
namespace {

void require(bool condition, const char* option, double value, const char* wanted) {
  if (!condition) {
    throw UsageError(fmt::format("'{}' must be {}, not {}", option, wanted, value));
  }
}

/// The ids that may be drawn, smallest first.
std::vector<int64_t> allowed_ids(size_t vocab_size, const grammar::TokenMask* allowed) {
  std::vector<int64_t> ids;
  if (allowed == nullptr) {
    ids.resize(vocab_size);
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }
  const std::vector<uint64_t>& words = allowed->words();
  for (size_t i = 0; i < words.size(); ++i) {
    for (uint64_t rest = words[i]; rest != 0; rest &= rest - 1) {
      ids.push_back(static_cast<int64_t>(i * 64) + std::countr_zero(rest));
    }
  }
  return ids;
}

/// The likeliest of them first; equals by id.
void keep_likeliest(std::span<const float> logits_V, int64_t top_k, std::vector<int64_t>& ids) {
  const auto likelier = [&](int64_t a, int64_t b) {
    return logits_V[a] != logits_V[b] ? logits_V[a] > logits_V[b] : a < b;
  };
  const auto kept = top_k > 0 ? std::min<int64_t>(top_k, std::ssize(ids)) : std::ssize(ids);
  std::ranges::partial_sort(ids, ids.begin() + kept, likelier);
  ids.resize(static_cast<size_t>(kept));
}

}  // namespace

void check(const SamplerOptions& options) {
  require(options.temperature >= 0 && options.temperature <= 100, "temperature",
          options.temperature, "from 0 to 100");
  require(options.top_k >= 0, "top-k", static_cast<double>(options.top_k), "at least 0");
  require(options.top_p > 0 && options.top_p <= 1, "top-p", options.top_p, "above 0 and at most 1");
  require(options.min_p >= 0 && options.min_p <= 1, "min-p", options.min_p, "from 0 to 1");
  require(options.repetition_penalty > 0 && options.repetition_penalty <= 100, "repetition-penalty",
          options.repetition_penalty, "above 0 and at most 100");
  for (const auto& [name, value] : {std::pair("frequency-penalty", options.frequency_penalty),
                                    std::pair("presence-penalty", options.presence_penalty)}) {
    require(value >= -2 && value <= 2, name, value, "from -2 to 2");
  }
}

void SeenTokens::add(int64_t id) {
  if (id < 0 || id >= std::ssize(is_seen_) || is_seen_[static_cast<size_t>(id)]) return;
  is_seen_[static_cast<size_t>(id)] = true;
  ids_.push_back(id);
}

void SeenTokens::add_made(int64_t id) {
  add(id);
  if (id >= 0 && id < std::ssize(is_seen_)) ++num_made_[id];
}

void SeenTokens::penalise(std::span<float> logits_V, const SamplerOptions& options) const {
  penalise(logits_V, options.repetition_penalty);
  if (options.frequency_penalty == 0 && options.presence_penalty == 0) return;
  for (const auto& [id, count] : num_made_) {
    logits_V[static_cast<size_t>(id)] -= static_cast<float>(
        options.frequency_penalty * static_cast<double>(count) + options.presence_penalty);
  }
}

void SeenTokens::penalise(std::span<float> logits_V, double penalty) const {
  if (penalty == 1) return;
  const auto factor = static_cast<float>(penalty);
  for (const int64_t id : ids_) {
    float& logit = logits_V[static_cast<size_t>(id)];
    logit = logit < 0 ? logit * factor : logit / factor;
  }
}

int64_t sample(std::span<const float> logits_V, const SamplerOptions& options, int64_t position,
               const grammar::TokenMask* allowed) {
  ATOLL_CHECK(!logits_V.empty());
  for (const float logit : logits_V) {
    if (!std::isfinite(logit)) {
      throw InputError("the model's logits are not finite: its weights are damaged");
    }
  }
  if (options.temperature == 0 && allowed == nullptr) {
    return std::distance(logits_V.begin(), std::ranges::max_element(logits_V));
  }
  std::vector<int64_t> ids = allowed_ids(logits_V.size(), allowed);
  ATOLL_CHECK(!ids.empty() && ids.back() < std::ssize(logits_V));
  keep_likeliest(logits_V, options.temperature == 0 ? 1 : options.top_k, ids);
  if (options.temperature == 0) return ids[0];
  std::vector<double> weights;
  weights.reserve(ids.size());
  double total = 0;
  for (const int64_t id : ids) {
    const double relative = static_cast<double>(logits_V[id]) - logits_V[ids[0]];
    weights.push_back(std::exp(relative / options.temperature));
    total += weights.back();
  }
  if (options.top_p < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < weights.size() && sum < options.top_p * total) sum += weights[kept++];
    weights.resize(std::max<size_t>(kept, 1));
  }
  while (weights.back() < options.min_p * weights.front()) weights.pop_back();
  total = std::accumulate(weights.begin(), weights.end(), 0.0);
  static const uint64_t kStream = random_stream("sampler");
  double rest = total * random_uniform(options.seed, kStream, static_cast<uint64_t>(position));
  for (size_t i = 0; i < weights.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return ids[i];
  }
  return ids[weights.size() - 1];  // Rounding: the sum fell short by an ulp.
}

}  // namespace atl::decoding
