#include "atoll/decoding/order.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::decoding {
namespace {

bool allows(std::span<const uint64_t> allowed, int64_t id) {
  const auto place = static_cast<size_t>(id);
  return allowed.empty() || (allowed[place / 64] >> (place % 64) & 1) != 0;
}

bool is_score(const TokenScore& score, int64_t num_top, int64_t vocab_size) {
  const auto is_right = [&](const auto& entry) {
    return entry.first >= 0 && entry.first < vocab_size && std::isfinite(entry.second);
  };
  return std::isfinite(score.logprob) && std::ranges::all_of(score.top, is_right) &&
         std::ssize(score.top) == std::min(num_top, vocab_size);
}

}  // namespace

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

size_t num_bytes(const Order& order) {
  return sizeof order + order.bias.size() * sizeof order.bias[0] +
         order.seen.size() * sizeof order.seen[0] + order.allowed.size() * sizeof order.allowed[0];
}

void check(const Order& order, int64_t vocab_size) {
  const auto require_id = [&](int64_t id) {
    if (id >= 0 && id < vocab_size) return;
    throw InputError(fmt::format("an order names the id {}, and there are {}", id, vocab_size));
  };
  if (order.num_top < 0 || order.num_top > kMostTop || order.position < 0) {
    throw InputError(
        fmt::format("an order for {} scores at position {}", order.num_top, order.position));
  }
  if (order.bias.size() > kMostListed || order.seen.size() > kMostListed) {
    throw InputError(fmt::format("penalties for {} ids and biases for {}, and {} is the most",
                                 order.seen.size(), order.bias.size(), kMostListed));
  }
  require_id(order.id);
  for (const auto& [id, bias] : order.bias) {
    require_id(id);
    if (!std::isfinite(bias)) throw InputError("an order whose bias is not finite");
  }
  for (const SeenToken& seen : order.seen) require_id(seen.id);
  try {
    check(order.sampler);
  } catch (const UsageError& error) {
    throw InputError(error.what());
  }
  if (order.allowed.empty()) return;
  const auto vocab = static_cast<size_t>(vocab_size);
  const size_t rest = vocab % 64;
  const bool is_right = order.allowed.size() == (vocab + 63) / 64 &&
                        (rest == 0 || order.allowed.back() >> rest == 0) &&
                        std::ranges::any_of(order.allowed, [](uint64_t word) { return word != 0; });
  if (!is_right) throw InputError("an order that allows no id, or ids that there are not");
}

Outcome follow(const Order& order, std::span<float> row) {
  Outcome outcome{.wanted = order.wanted, .score = {}, .hidden_C = {}};
  switch (order.wanted) {
    case Wanted::kNothing:
      break;
    case Wanted::kHidden:
      outcome.hidden_C.assign(row.begin(), row.end());
      break;
    case Wanted::kScore:
      outcome.score = score_of(row, order.id, order.num_top);
      break;
    case Wanted::kToken: {
      std::vector<float> own;  // The score is the model's, before what changes its logits here.
      if (order.is_scored) own.assign(row.begin(), row.end());
      for (const auto& [id, bias] : order.bias) row[static_cast<size_t>(id)] += bias;
      penalise(row, order.seen, order.sampler);
      const int64_t id = sample(row, order.sampler, order.position, order.allowed);
      outcome.score = order.is_scored ? score_of(own, id, order.num_top) : TokenScore{.id = id};
      break;
    }
  }
  return outcome;
}

bool fits(const Outcome& outcome, const Order& order, int64_t vocab_size, int64_t hidden_size) {
  const int64_t id = outcome.score.id;
  if (outcome.wanted != order.wanted) return false;
  switch (order.wanted) {
    case Wanted::kNothing:
      return true;
    case Wanted::kHidden:
      return std::ssize(outcome.hidden_C) == hidden_size &&
             std::ranges::all_of(outcome.hidden_C,
                                 [](float value) { return std::isfinite(value); });
    case Wanted::kScore:
      return id == order.id && is_score(outcome.score, order.num_top, vocab_size);
    case Wanted::kToken:
      return id >= 0 && id < vocab_size && allows(order.allowed, id) &&
             (order.is_scored ? is_score(outcome.score, order.num_top, vocab_size)
                              : outcome.score == TokenScore{.id = id});
  }
  return false;
}

}  // namespace atl::decoding
