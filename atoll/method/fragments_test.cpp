#include "atoll/method/fragments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "atoll/base/error.h"
#include "atoll/base/random.h"

namespace atl::method {
namespace {

using testing::ElementsAre;

std::vector<weights::ParameterSpec> specs_of(int64_t num_layers) {
  return weights::parameter_specs({.vocab_size = 50,
                                   .hidden_size = 8,
                                   .intermediate_size = 24,
                                   .num_layers = num_layers,
                                   .num_heads = 2,
                                   .num_kv_heads = 1,
                                   .tie_embeddings = false});
}

/// How often each element is in a fragment, counted one by one.
std::vector<int> coverage(const std::vector<Fragment>& fragments, int64_t size) {
  std::vector<int> times(static_cast<size_t>(size));
  for (const Fragment& fragment : fragments) {
    int64_t total = 0;
    for (const Range& range : fragment.ranges) {
      total += range.end - range.begin;
      for (int64_t i = range.begin; i < range.end; ++i) times.at(static_cast<size_t>(i)) += 1;
    }
    EXPECT_EQ(total, fragment.size);
    EXPECT_GT(total, 0);
  }
  return times;
}

TEST(FragmentsTest, EveryElementIsInExactlyOneFragment) {
  for (int64_t num_layers = 1; num_layers <= 9; ++num_layers) {
    const auto specs = specs_of(num_layers);
    const int64_t size = specs.back().offset + specs.back().size;
    for (const std::string pattern : {"strided", "sequential", "balanced"}) {
      for (int64_t p = 1; p <= 1 + num_layers; ++p) {
        const auto fragments = make_fragments(specs, pattern, p);
        EXPECT_EQ(std::ssize(fragments), p);
        EXPECT_THAT(coverage(fragments, size), testing::Each(1)) << pattern << ' ' << p;
      }
    }
  }
}

/// Which fragment holds the layers, by looking at where their tensors lie.
std::vector<int64_t> fragment_of_layers(const std::string& pattern, int64_t num_layers, int64_t p) {
  const auto specs = specs_of(num_layers);
  const auto fragments = make_fragments(specs, pattern, p);
  std::vector<int64_t> of(static_cast<size_t>(num_layers), -1);
  for (const auto& spec : specs) {
    for (size_t f = 0; f < fragments.size(); ++f) {
      for (const Range& range : fragments[f].ranges) {
        if (spec.offset < range.begin || spec.offset >= range.end) continue;
        if (spec.layer < 0) {
          EXPECT_EQ(f, 0U) << spec.name;
        } else {
          of.at(static_cast<size_t>(spec.layer)) = static_cast<int64_t>(f);
        }
      }
    }
  }
  return of;
}

TEST(FragmentsTest, LayersAreStridedOrNeighbours) {
  EXPECT_THAT(fragment_of_layers("strided", 6, 4), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(fragment_of_layers("sequential", 6, 4), ElementsAre(1, 1, 2, 2, 3, 3));
  EXPECT_THAT(fragment_of_layers("sequential", 3, 4), ElementsAre(1, 2, 3));
  EXPECT_THAT(fragment_of_layers("strided", 2, 1), ElementsAre(0, 0));
}

TEST(FragmentsTest, BalancedOnesDifferByAtMostOneElement) {
  const auto specs = specs_of(3);
  for (const int64_t p : {2, 3, 7, 8, 101}) {
    int64_t least = INT64_MAX;
    int64_t most = 0;
    for (const Fragment& fragment : make_fragments(specs, "balanced", p)) {
      least = std::min(least, fragment.size);
      most = std::max(most, fragment.size);
    }
    EXPECT_LE(most - least, 1) << p;
  }
}

TEST(FragmentsTest, MoreFragmentsThanLayersAreRefused) {
  EXPECT_THROW(make_fragments(specs_of(3), "strided", 5), UsageError);
  EXPECT_THROW(make_fragments(specs_of(3), "sequential", 5), UsageError);
  EXPECT_NO_THROW(make_fragments(specs_of(3), "balanced", 5));
}

TEST(FragmentScheduleTest, ThePapersExample) {
  const FragmentSchedule schedule(100, 2, 1000);  // H = 100, P = 2, t_1 = 50.
  std::map<int64_t, int64_t> sent;
  for (int64_t step = 1; step < 1000; ++step) {
    if (const auto fragment = schedule.due(step)) sent[step] = *fragment;
  }
  EXPECT_EQ(sent[100], 0);
  EXPECT_FALSE(schedule.due(50));
  EXPECT_EQ(sent[150], 1);
  EXPECT_EQ(sent[200], 0);
  EXPECT_EQ(sent[250], 1);
  EXPECT_EQ(sent.size(), 18U);  // 100 to 900, 150 to 950.
}

TEST(FragmentScheduleTest, AgreesWithTheDefinitionForRandomSettings) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto period = static_cast<int64_t>(1 + random_bits(1, seed, 0) % 40);
    const auto p =
        static_cast<int64_t>(1 + random_bits(1, seed, 1) % static_cast<uint64_t>(period));
    const auto last = static_cast<int64_t>(1 + random_bits(1, seed, 2) % 200);
    const FragmentSchedule schedule(period, p, last);
    int64_t next_round = 0;
    std::vector<int64_t> newest(static_cast<size_t>(p), 0);
    for (int64_t t = 1; t <= last; ++t) {
      for (int64_t f = 0; f < p; ++f) {
        const int64_t offset = f * (period / p);
        const bool due = t < last && (t - offset) % period == 0 && t - offset >= period;
        EXPECT_EQ(schedule.due(t) == f, due) << "t " << t << " fragment " << f;
        EXPECT_EQ(schedule.last_sent(f, t - 1), newest[static_cast<size_t>(f)]);
        if (!due && t < last) continue;
        EXPECT_EQ(schedule.round(f, t), next_round) << "rounds are numbered without a gap";
        newest[static_cast<size_t>(f)] = t;
        next_round += 1;
      }
    }
  }
}

}  // namespace
}  // namespace atl::method
