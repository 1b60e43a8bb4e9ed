#include "atoll/decoding/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/mix.h"
#include "atoll/base/random.h"

namespace atl::decoding {
namespace {

std::map<int64_t, int> draw(const std::vector<float>& logits, SamplerOptions options, int count) {
  std::map<int64_t, int> found;
  for (int i = 0; i < count; ++i) ++found[sample(logits, options, i)];
  return found;
}

TEST(SamplerTest, TemperatureZeroTakesTheLargestAndTheFirstAmongEquals) {
  EXPECT_EQ(sample(std::vector<float>{1, 5, 5, 2}, {.temperature = 0}, 0), 1);
}

TEST(SamplerTest, FrequenciesFollowTheSoftmaxOfTheScaledLogits) {
  const std::vector<float> logits{0, 1, -1, 2};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    constexpr int kDraws = 40'000;
    const auto found = draw(logits, {.temperature = temperature, .seed = 7}, kDraws);
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (size_t id = 0; id < logits.size(); ++id) {
      const double wanted = std::exp(logits[id] / temperature) / total;
      const double share = found.contains(id) ? found.at(id) / double{kDraws} : 0;
      EXPECT_NEAR(share, wanted, 4 * std::sqrt(wanted / kDraws)) << temperature << " " << id;
    }
  }
}

TEST(SamplerTest, TopKAndTopPLeaveOutTheTail) {
  const std::vector<float> logits{std::log(0.1F), std::log(0.4F), std::log(0.3F), std::log(0.2F)};
  EXPECT_EQ(draw(logits, {.top_k = 1}, 200), (std::map<int64_t, int>{{1, 200}}));
  const auto two = draw(logits, {.top_k = 2}, 2000);
  EXPECT_EQ(two.size(), 2U);
  EXPECT_NEAR(two.at(1) / 2000.0, 4.0 / 7, 0.05);             // Renormalised.
  EXPECT_EQ(draw(logits, {.top_p = 0.3}, 200).size(), 1U);    // 0.4 alone reaches it.
  EXPECT_EQ(draw(logits, {.top_p = 0.65}, 2000).size(), 2U);  // 0.4 + 0.3.
  EXPECT_EQ(draw(logits, {.top_p = 0.85}, 2000).size(), 3U);
  EXPECT_EQ(draw(logits, {.top_k = 2, .top_p = 0.99}, 2000).size(), 2U);
  EXPECT_EQ(draw(logits, {.top_k = 99}, 2000).size(), 4U);
}

TEST(SamplerTest, MinPLeavesOutWhatIsTooUnlikelyBesideTheLikeliest) {
  const std::vector<float> logits{std::log(0.1F), std::log(0.4F), std::log(0.3F), std::log(0.2F)};
  EXPECT_EQ(draw(logits, {.min_p = 0.2}, 2000).size(), 4U);
  EXPECT_EQ(draw(logits, {.min_p = 0.45}, 2000).size(), 3U);
  EXPECT_EQ(draw(logits, {.min_p = 0.7}, 2000).size(), 2U);
  EXPECT_EQ(draw(logits, {.min_p = 1}, 200), (std::map<int64_t, int>{{1, 200}}));
  // Behind the temperature, which makes 0.1 / 0.4 a half.
  EXPECT_EQ(draw(logits, {.temperature = 2, .min_p = 0.45}, 2000).size(), 4U);
}

void apply(const SeenTokens& seen, std::vector<float>& logits, const SamplerOptions& options) {
  penalise(logits, seen.penalised(options), options);
}

TEST(SamplerTest, WhatWasSeenIsPenalisedOnce) {
  SeenTokens seen(4);
  for (const int64_t id : {1, 1, 2, 9, -1}) seen.add(id);
  std::vector<float> logits{3, 2, -2, -1};
  apply(seen, logits, {.repetition_penalty = 2});
  EXPECT_EQ(logits, (std::vector<float>{3, 1, -4, -1}));
}

TEST(SamplerTest, WhatWasMadeIsPenalisedByHowOften) {
  SeenTokens seen(4);
  seen.add(0);  // Of the prompt: no part of these two.
  for (const int64_t id : {1, 1, 2, 9, -1}) seen.add_made(id);
  std::vector<float> logits{3, 2, -2, -1};
  apply(seen, logits, {.frequency_penalty = 0.5, .presence_penalty = 1});
  EXPECT_EQ(logits, (std::vector<float>{3, 0, -3.5, -1}));
  logits = {3, 2, -2, -1};  // Behind the repetition's, which is for all that is there.
  apply(seen, logits, {.repetition_penalty = 2, .frequency_penalty = -1});
  EXPECT_EQ(logits, (std::vector<float>{1.5, 3, -3, -1}));
}

TEST(SamplerTest, EqualSeedAndPositionDrawEqually) {
  const std::vector<float> logits(100, 0.0F);
  const SamplerOptions options{.seed = 3};
  EXPECT_EQ(sample(logits, options, 5), sample(logits, options, 5));
  EXPECT_GT(draw(logits, options, 300).size(), 50U);
  int equal = 0;
  for (int i = 0; i < 300; ++i) {
    equal += sample(logits, options, i) == sample(logits, {.seed = 4}, i) ? 1 : 0;
  }
  EXPECT_LT(equal, 30);
}

TEST(SamplerTest, OnlyWhatAMaskAllowsIsDrawnWithItsShare) {
  const std::vector<float> logits{std::log(0.1F), std::log(0.4F), std::log(0.3F), std::log(0.2F)};
  const std::vector<uint64_t> allowed{0b101};
  int64_t num_first = 0;
  for (int i = 0; i < 4000; ++i) {
    const int64_t id = sample(logits, {}, i, allowed);
    ASSERT_TRUE(id == 0 || id == 2);
    num_first += id == 0 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(num_first) / 4000, 0.25, 0.03);
  EXPECT_EQ(sample(logits, {.temperature = 0}, 0, allowed), 2);
  EXPECT_EQ(sample(logits, {.top_k = 1}, 0, allowed), 2);
}

/// All of it sorted and summed, and everybody's time looked at.
int64_t sample_plainly(const std::vector<float>& logits, const SamplerOptions& options,
                       int64_t position) {
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) ids.resize(std::min(ids.size(), static_cast<size_t>(options.top_k)));
  const auto weight = [&, largest = logits[ids[0]]](int64_t id) {
    return std::exp((static_cast<double>(logits[id]) - largest) / options.temperature);
  };
  const auto sum = [&] {
    double total = 0;
    for (const int64_t id : ids) total += weight(id);
    return total;
  };
  const double enough = options.top_p * sum();
  double reached = 0;
  size_t kept = 0;
  while (kept < ids.size() && (options.top_p == 1 || reached < enough)) {
    reached += weight(ids[kept++]);
  }
  ids.resize(kept);
  while (weight(ids.back()) < options.min_p) ids.pop_back();
  const uint64_t key =
      random_bits(options.seed, random_stream("sampler"), static_cast<uint64_t>(position));
  std::vector<double> times;
  for (const int64_t id : ids) {
    const double luck =
        static_cast<double>(mix(key + kMixStep * static_cast<uint64_t>(id)) >> 11) + 0.5;
    times.push_back(-std::log1p(-luck * 0x1p-53) / weight(id));
  }
  return ids[static_cast<size_t>(std::ranges::min_element(times) - times.begin())];
}

TEST(SamplerTest, OfALargeVocabularyTheSameIsDrawnAsIfAllOfItWereSorted) {
  std::vector<float> logits(3000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = std::round(static_cast<float>(20 * random_normal(1, 2, i))) / 10;  // Many equals.
  }
  std::set<int64_t> found;
  int position = 0;
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.temperature = 3}, SamplerOptions{.temperature = 0.3},
        SamplerOptions{.top_k = 40}, SamplerOptions{.top_k = 500, .top_p = 0.9},
        SamplerOptions{.top_p = 0.95}, SamplerOptions{.min_p = 0.05},
        SamplerOptions{.temperature = 2, .top_k = 2999, .top_p = 0.99, .min_p = 0.01}}) {
    for (int i = 0; i < 60; ++i, ++position) {
      const int64_t id = sample(logits, options, position);
      ASSERT_EQ(id, sample_plainly(logits, options, position));
      found.insert(id);
    }
  }
  EXPECT_GT(found.size(), 150U);
}

TEST(SamplerTest, OfDistributionsThatAreAlikeMostlyTheSameIsDrawn) {
  constexpr size_t kVocab = 2000;
  constexpr int kDraws = 4000;
  std::vector<float> one(kVocab);
  std::vector<float> other(kVocab);
  for (size_t i = 0; i < kVocab; ++i) {
    one[i] = static_cast<float>(3 * random_normal(1, 1, i));
    other[i] = one[i] + static_cast<float>(0.5 * random_normal(1, 2, i));
  }
  std::vector<double> shares[2];
  for (const auto* logits : {&one, &other}) {
    std::vector<double>& share = shares[logits == &one ? 0 : 1];
    double total = 0;
    for (const float logit : *logits) total += std::exp(logit);
    for (const float logit : *logits) share.push_back(std::exp(logit) / total);
  }
  double overlap = 0;
  for (size_t i = 0; i < kVocab; ++i) overlap += std::min(shares[0][i], shares[1][i]);
  int num_same = 0;
  for (int i = 0; i < kDraws; ++i) num_same += sample(one, {}, i) == sample(other, {}, i) ? 1 : 0;
  // No way to draw has more in common than the overlap; this one has at least o / (2 - o).
  const double share = num_same / double{kDraws};
  EXPECT_LT(share, overlap + 0.03);
  EXPECT_GT(share, overlap / (2 - overlap) - 0.03);
}

TEST(SamplerTest, RefusesBadOptionsAndDamagedLogits) {
  EXPECT_THROW(check(SamplerOptions{.temperature = -1}), UsageError);
  EXPECT_THROW(check(SamplerOptions{.top_k = -1}), UsageError);
  EXPECT_THROW(check(SamplerOptions{.top_p = 0}), UsageError);
  EXPECT_THROW(check(SamplerOptions{.top_p = 1.5}), UsageError);
  EXPECT_THROW(check(SamplerOptions{.min_p = -0.1}), UsageError);
  EXPECT_THROW(check(SamplerOptions{.repetition_penalty = 0}), UsageError);
  EXPECT_THROW(check(SamplerOptions{.frequency_penalty = 2.5}), UsageError);
  EXPECT_THROW(check(SamplerOptions{.presence_penalty = -2.5}), UsageError);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(sample(std::vector<float>{0, nan}, {}, 0), InputError);
}

}  // namespace
}  // namespace atl::decoding
