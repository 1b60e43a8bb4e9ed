#pragma once
// From logits to the next token. A pure function: the random number is f(seed, position), so a
// session that is moved or replayed draws the same tokens. Free of LibTorch.
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "atoll/base/error.h"

namespace atl::decoding {

/// Logits that are no numbers: the weights that made them are damaged.
class NotFinite : public InputError {
 public:
  using InputError::InputError;
};

struct SamplerOptions {
  double temperature = 1;  // Divides the logits; 0 takes the largest, the smallest id among equals.
  int64_t top_k = 0;       // Only the k likeliest tokens; 0: all.
  double top_p = 1;        // Then only the fewest whose probabilities reach this sum; 1: all.
  double min_p = 0;  // Then only those at least this times as likely as the likeliest; 0: all.
  double repetition_penalty = 1;  // Above 1: what is in the text already gets less likely.
  double frequency_penalty = 0;   // Taken from a logit for each time that its token was made,
  double presence_penalty = 0;    // and once for all of them; prompts do not count.
  uint64_t seed = 0;

  bool operator==(const SamplerOptions&) const = default;
};

/// Throws UsageError naming the option that is out of range.
void check(const SamplerOptions& options);

/// The token after `position` tokens; of those with a bit in `allowed`, one at least, where there
/// are bits. Throws NotFinite when a logit, allowed or not, is not finite: the model is damaged.
int64_t sample(std::span<const float> logits_V, const SamplerOptions& options, int64_t position,
               std::span<const uint64_t> allowed = {});

/// An id that a text holds, and how often the model made it.
struct SeenToken {
  int64_t id = 0;
  int64_t num_made = 0;

  bool operator==(const SeenToken&) const = default;
};

/// The ids that a text holds, each once.
class SeenTokens {
 public:
  explicit SeenTokens(int64_t vocab_size) : is_seen_(static_cast<size_t>(vocab_size)) {}
  /// One of the prompt. Ids over the vocabulary are passed over: the model refuses them.
  void add(int64_t id);
  /// One that the model made.
  void add_made(int64_t id);
  /// Those for which the options have penalties.
  std::vector<SeenToken> penalised(const SamplerOptions& options) const;

 private:
  std::vector<bool> is_seen_;
  std::vector<int64_t> ids_;
  std::map<int64_t, int64_t> num_made_;
};

/// All penalties of the options, which come before everything else that a sampler does. The
/// repetition's divides logits, or multiplies those below 0 (Keskar et al. 2019; as transformers
/// has it); then come those of what was made.
void penalise(std::span<float> logits_V, std::span<const SeenToken> seen,
              const SamplerOptions& options);

}  // namespace atl::decoding
