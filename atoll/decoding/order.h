#pragma once
// What is to become of a token's row, and what has: an order is made where the text is known, and
// followed where the row is, in this process or at a server. Nothing else counts for what is
// drawn, so that it does not matter where.
//
// Shapes: C = hidden size, V = vocabulary.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "atoll/decoding/sampler.h"

namespace atl::decoding {

/// A token and how likely the model found it: natural logarithms of the softmax of the logits,
/// before temperature, penalties and whatever else a sampler does.
struct TokenScore {
  int64_t id = 0;
  double logprob = 0;
  std::vector<std::pair<int64_t, double>> top;  // The likeliest ids, likeliest first.

  bool operator==(const TokenScore&) const = default;
};

/// How likely a model finds `id`, and the `num_top` ids that it finds likeliest, equals by id.
TokenScore score_of(std::span<const float> logits_V, int64_t id, int64_t num_top);

enum class Wanted : uint8_t {
  kNothing,
  kHidden,  // The hidden state behind the final norm.
  kScore,   // Of a token that is known.
  kToken,   // The next one.
};
constexpr uint8_t num_values(Wanted /*wanted*/) { return 4; }

struct Order {
  Wanted wanted = Wanted::kNothing;
  int64_t id = 0;          // kScore: whose.
  bool is_scored = false;  // kToken: it has a logprob.
  int64_t num_top = 0;     // Of a score.
  // Of kToken:
  int64_t position = 0;  // The token's in its text.
  SamplerOptions sampler;
  std::vector<std::pair<int64_t, float>> bias;  // Added to these ids' logits before anything else.
  std::vector<SeenToken> seen;                  // What penalties are for.
  std::vector<uint64_t> allowed;                // A bit for each id; empty: all are.

  bool operator==(const Order&) const = default;
};

struct Outcome {
  Wanted wanted = Wanted::kNothing;
  TokenScore score;             // kToken: where it is not scored, its id alone.
  std::vector<float> hidden_C;  // kHidden.

  bool operator==(const Outcome&) const = default;
};

/// Of what they have in memory, about.
size_t num_bytes(const Order& order);

/// So that an order is no message beyond all bounds.
constexpr int64_t kMostTop = 64;
constexpr size_t kMostListed = 50'000;  // Ids with a bias, or seen.

/// What a stranger asks for, or is asked for. Throws InputError where it is too much, or makes no
/// sense with such a vocabulary.
void check(const Order& order, int64_t vocab_size);

/// `row`: logits (V), which are overwritten, or the hidden state (C). Throws InputError when a
/// logit that is drawn from is not finite: the model is damaged.
Outcome follow(const Order& order, std::span<float> row);

/// Whether a stranger's outcome can be one of that order.
bool fits(const Outcome& outcome, const Order& order, int64_t vocab_size, int64_t hidden_size);

}  // namespace atl::decoding
