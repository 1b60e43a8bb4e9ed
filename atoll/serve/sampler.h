#pragma once
// From logits to the next token. A pure function: the random number is f(seed, position), so a
// session that is moved or replayed draws the same tokens. Free of LibTorch.
#include <cstdint>
#include <span>

namespace atl::serve {

struct SamplerOptions {
  double temperature = 1;  // Divides the logits; 0 takes the largest, the smallest id among equals.
  int64_t top_k = 0;       // Only the k likeliest tokens; 0: all.
  double top_p = 1;        // Then only the fewest whose probabilities reach this sum; 1: all.
  uint64_t seed = 0;
};

/// Throws UsageError naming the option that is out of range.
void check(const SamplerOptions& options);

/// The token after `position` tokens. Throws InputError when a logit is not finite: the model is
/// damaged.
int64_t sample(std::span<const float> logits_V, const SamplerOptions& options, int64_t position);

}  // namespace atl::serve
