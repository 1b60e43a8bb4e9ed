#include "atoll/decoding/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/mix.h"
#include "atoll/base/random.h"

namespace atl::decoding {
namespace {

void require(bool condition, const char* option, double value, const char* wanted) {
  if (!condition) {
    throw UsageError(fmt::format("'{}' must be {}, not {}", option, wanted, value));
  }
}

/// The ids that may be drawn, smallest first.
std::vector<int64_t> allowed_ids(size_t vocab_size, std::span<const uint64_t> allowed) {
  std::vector<int64_t> ids;
  if (allowed.empty()) {
    ids.resize(vocab_size);
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
  }
  for (size_t i = 0; i < allowed.size(); ++i) {
    for (uint64_t rest = allowed[i]; rest != 0; rest &= rest - 1) {
      ids.push_back(static_cast<int64_t>(i * 64) + std::countr_zero(rest));
    }
  }
  return ids;
}

/// Ids by their logits, the largest first, equals by id; sorted only as far as somebody looks: what
/// is kept of a vocabulary is seldom much.
class Likeliest {
 public:
  Likeliest(std::span<const float> logits_V, std::vector<int64_t> ids)
      : logits_V_(logits_V), ids_(std::move(ids)) {}

  int64_t operator[](size_t place) {
    while (place >= num_sorted_) sort_more();
    return ids_[place];
  }

 private:
  static constexpr size_t kFirst = 32;
  static constexpr size_t kGrowth = 8;

  void sort_more() {
    const auto at = [this](size_t place) {
      return ids_.begin() + static_cast<std::ptrdiff_t>(place);
    };
    const auto likelier = [this](int64_t a, int64_t b) {
      return logits_V_[a] != logits_V_[b] ? logits_V_[a] > logits_V_[b] : a < b;
    };
    const size_t end = std::min(std::max(kFirst, num_sorted_ * kGrowth), ids_.size());
    std::nth_element(at(num_sorted_), at(end - 1), ids_.end(), likelier);
    std::sort(at(num_sorted_), at(end), likelier);
    num_sorted_ = end;
  }

  std::span<const float> logits_V_;
  std::vector<int64_t> ids_;
  size_t num_sorted_ = 0;
};

/// The logarithm of an id's weight; the largest is 0.
double log_weight(float logit, float largest, double temperature) {
  return (static_cast<double>(logit) - largest) / temperature;
}

/// The likeliest that the options leave of these; the largest logit is `largest`.
std::vector<int64_t> kept_of(std::span<const float> logits_V, const SamplerOptions& options,
                             std::vector<int64_t> ids, float largest) {
  const auto weight = [&](int64_t id) {
    return std::exp(log_weight(logits_V[id], largest, options.temperature));
  };
  const bool is_cut = options.top_k > 0 && options.top_k < std::ssize(ids);
  const size_t most = is_cut ? static_cast<size_t>(options.top_k) : ids.size();
  double total = 0;  // Of what top-k leaves.
  if (options.top_p < 1 && !is_cut) {
    for (const int64_t id : ids) total += weight(id);
  }
  Likeliest likeliest(logits_V, std::move(ids));
  if (options.top_p < 1 && is_cut) {
    for (size_t i = 0; i < most; ++i) total += weight(likeliest[i]);
  }
  std::vector<int64_t> kept;
  double sum = 0;
  while (kept.size() < most && (options.top_p == 1 || sum < options.top_p * total)) {
    const int64_t id = likeliest[kept.size()];
    const double its = weight(id);
    if (its < options.min_p) break;
    kept.push_back(id);
    sum += its;
  }
  return kept;
}

/// Each id runs for a time that is exponential, with its weight as the rate: the first one comes in
/// with the probability that its share of the weights is (Gumbel-max; Maddison, Tarlow & Minka
/// 2014). An id's luck hangs on the seed, the position and the id alone. So two distributions that
/// are alike, as a draft's and its model's are, mostly draw the same.
class Race {
 public:
  Race(uint64_t seed, int64_t position)
      : key_(random_bits(seed, random_stream("sampler"), static_cast<uint64_t>(position))) {}

  /// `score`: the logarithm of its weight.
  void enter(int64_t id, double score) {
    // Luck is below what its leading zeros say, and seldom worth to be looked at closely.
    if (score + kMostLuck <= best_) return;
    const uint64_t bits = mix(key_ + kMixStep * static_cast<uint64_t>(id)) >> 11;
    const int zeros = std::countl_zero(bits) - 11;
    if (score + (zeros + 1) * std::numbers::ln2 <= best_) return;
    const double time = -std::log1p(-(static_cast<double>(bits) + 0.5) * 0x1p-53);
    const double place = score - std::log(time);
    if (winner_ >= 0 && place <= best_) return;
    best_ = place;
    winner_ = id;
  }
  int64_t winner() const { return winner_; }

 private:
  static constexpr double kMostLuck = 54 * std::numbers::ln2;

  uint64_t key_;
  double best_ = -std::numeric_limits<double>::infinity();
  int64_t winner_ = -1;
};

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

std::vector<SeenToken> SeenTokens::penalised(const SamplerOptions& options) const {
  std::vector<SeenToken> seen;
  if (options.frequency_penalty != 0 || options.presence_penalty != 0) {
    for (const auto& [id, count] : num_made_) seen.push_back({.id = id, .num_made = count});
  }
  if (options.repetition_penalty == 1) return seen;
  const bool are_listed = !seen.empty();
  for (const int64_t id : ids_) {
    if (!are_listed || !num_made_.contains(id)) seen.push_back({.id = id, .num_made = 0});
  }
  return seen;
}

void penalise(std::span<float> logits_V, std::span<const SeenToken> seen,
              const SamplerOptions& options) {
  const auto factor = static_cast<float>(options.repetition_penalty);
  for (const auto& [id, num_made] : seen) {
    float& logit = logits_V[static_cast<size_t>(id)];
    logit = logit < 0 ? logit * factor : logit / factor;
    if (num_made == 0) continue;
    logit -= static_cast<float>(options.frequency_penalty * static_cast<double>(num_made) +
                                options.presence_penalty);
  }
}

int64_t sample(std::span<const float> logits_V, const SamplerOptions& options, int64_t position,
               std::span<const uint64_t> allowed) {
  ATOLL_CHECK(!logits_V.empty());
  for (const float logit : logits_V) {
    if (!std::isfinite(logit)) {
      throw NotFinite("the model's logits are not finite: its weights are damaged");
    }
  }
  if (options.temperature == 0 && allowed.empty()) {
    return std::distance(logits_V.begin(), std::ranges::max_element(logits_V));
  }
  std::vector<int64_t> ids = allowed_ids(logits_V.size(), allowed);
  ATOLL_CHECK(!ids.empty() && ids.back() < std::ssize(logits_V));
  const auto largest_id = *std::ranges::max_element(
      ids, [&](int64_t a, int64_t b) { return logits_V[a] < logits_V[b]; });
  if (options.temperature == 0) return largest_id;
  const float largest = logits_V[largest_id];
  if (options.top_k > 0 || options.top_p < 1 || options.min_p > 0) {
    ids = kept_of(logits_V, options, std::move(ids), largest);
  }
  Race race(options.seed, position);
  for (const int64_t id : ids) {
    race.enter(id, log_weight(logits_V[id], largest, options.temperature));
  }
  return race.winner();
}

}  // namespace atl::decoding
