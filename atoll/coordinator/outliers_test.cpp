#include "atoll/coordinator/outliers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "atoll/testing/outlier_definition.h"

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Compared = Outliers::Compared;
using Contributed = Outliers::Contributed;
using Offence = Outliers::Offence;
using Vectors = std::vector<std::vector<double>>;

/// Contributions of members 0, 1, ...
Compared compare(const Vectors& vectors, int64_t num_values = 1'000'000) {
  const auto dot = [](const auto& a, const auto& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  Compared compared{.num_values = num_values};
  for (const auto& a : vectors) {
    for (const auto& b : vectors) {
      const double both = std::sqrt(dot(a, a) * dot(b, b));
      compared.cosines.push_back(both > 0 ? dot(a, b) / both : 0);
    }
  }
  return compared;
}

class OutliersTest : public testing::Test {
 protected:
  /// A round of members 0, 1, ... with these norms: who was left out; the rest is committed.
  std::vector<int32_t> round(const std::vector<double>& norms) {
    std::vector<Contributed> all;
    for (size_t i = 0; i < norms.size(); ++i) all.push_back({static_cast<int32_t>(i), norms[i]});
    return commit(all);
  }
  std::vector<int32_t> commit(const std::vector<Contributed>& all, const Compared& compared = {}) {
    last = outliers.judge(known, all, compared);
    std::vector<int32_t> numbers;
    for (const auto& outlier : last) numbers.push_back(outlier.number);
    for (const Contributed& one : all) {
      if (std::ranges::find(numbers, one.number) == numbers.end()) Outliers::remember(known, one);
    }
    return numbers;
  }
  void rounds(int count, const std::vector<double>& norms) {
    for (int i = 0; i < count; ++i) EXPECT_THAT(round(norms), IsEmpty());
  }
  /// Of norm 1 and these weights, pointing so.
  std::vector<Outliers::Outlier> directions(const Vectors& vectors,
                                            std::vector<int64_t> weights = {},
                                            int64_t num_values = 1'000'000) {
    weights.resize(vectors.size(), 100);
    std::vector<Contributed> all;
    for (size_t i = 0; i < vectors.size(); ++i) {
      all.push_back({static_cast<int32_t>(i), 1, weights[i]});
    }
    return outliers.judge(known, all, compare(vectors, num_values));
  }

  Outliers outliers{10};
  Outliers::Norms known;
  std::vector<Outliers::Outlier> last;
};

TEST_F(OutliersTest, WhoIsFarAboveTheMedianIsLeftOut) {
  rounds(3, {1, 2, 3, 4});
  EXPECT_THAT(round({1, 2, 25, 4}), IsEmpty()) << "10 times 2.5 is not over it";
  EXPECT_THAT(round({1, 26, 3, 4}), ElementsAre(1));
  EXPECT_EQ(last[0], (Outliers::Outlier{1, Offence::kNorm, 26, 2.5}));
}

/// As in elastic pace after a round that took long.
TEST_F(OutliersTest, WhoHasTrainedForLongerMayHaveGoneFurther) {
  const auto judge = [&](double norm, int64_t weight) {
    return outliers.judge(
        known, std::vector<Contributed>{{0, norm, weight}, {1, 1, 100}, {2, 1, 100}, {3, 1, 100}},
        {});
  };
  EXPECT_THAT(judge(16, 1300), IsEmpty()) << "beside the others";
  EXPECT_THAT(judge(16, 150), SizeIs(1));
  for (int i = 0; i < 3; ++i) commit({{0, 1, 100}, {1, 1, 100}, {2, 1, 100}, {3, 1, 100}});
  EXPECT_THAT(judge(16, 1300), IsEmpty());
  EXPECT_THAT(judge(3, 10), IsEmpty()) << "few tokens, and not far";
  EXPECT_THAT(judge(16, 150), SizeIs(1));
}

TEST_F(OutliersTest, TheFirstRoundIsJudgedByItself) {
  EXPECT_THAT(round({1, 1.5, 2, 150}), ElementsAre(3));
  EXPECT_EQ(last[0], (Outliers::Outlier{3, Offence::kNorm, 150, 1.5}));
  EXPECT_THAT(round({1, 1, 10, 100}), ElementsAre(3)) << "three norms are known";
  EXPECT_THAT(round({1, 1, 1, 100}), ElementsAre(3)) << "six";
}

TEST_F(OutliersTest, OfThreeNobodyCanTellAtFirstWhoIsWrong) {
  EXPECT_THAT(round({1, 1, 100}), IsEmpty());
}

TEST_F(OutliersTest, BelowFourContributorsEachIsJudgedByItsOwnNorms) {
  rounds(5, {1, 100, 1});
  EXPECT_THAT(round({1, 100, 100}), ElementsAre(2));
  EXPECT_THAT(round({1, 1100, 1}), ElementsAre(1));
  EXPECT_EQ(last[0].usual, 100);
}

TEST_F(OutliersTest, ANewcomerAmongFewIsNotJudged) {
  rounds(10, {1, 1});
  EXPECT_THAT(round({1, 1, 500}), IsEmpty());
}

/// It was away while norms grew.
TEST_F(OutliersTest, AmongFewNobodyIsTooLargeWhoIsAsTheOthersAre) {
  rounds(5, {1, 1});
  for (double norm = 2; norm < 50; norm += 2) commit({{0, norm}});
  EXPECT_THAT(round({50, 45}), IsEmpty());
}

TEST_F(OutliersTest, WhenMostAreLargeTheRunHasChanged) {
  rounds(5, {1, 1, 1, 1});
  EXPECT_THAT(round({50, 50, 1, 1}), ElementsAre(0, 1));
  EXPECT_THAT(round({50, 50, 50, 1}), IsEmpty());
  EXPECT_THAT(round({50, 50, 50, 50}), IsEmpty());
}

TEST_F(OutliersTest, WhenMostAreLargeTheyAreJudgedByThemselves) {
  rounds(5, {1, 1, 1, 1, 1});
  EXPECT_THAT(round({50, 50, 50, 50, 5000}), ElementsAre(4));
}

TEST_F(OutliersTest, OneThatIsAloneIsNeverLeftOut) {
  rounds(5, {1});
  EXPECT_THAT(round({1e9}), IsEmpty());
}

TEST_F(OutliersTest, WhatStaysLargeStaysOutUntilItIsUsualAgain) {
  for (int i = 0; i < 100; ++i) EXPECT_THAT(round({1, 1, 1, 50}), ElementsAre(3));
  rounds(1, {1, 1, 1, 1});
  EXPECT_THAT(round({1, 1, 1, 50}), ElementsAre(3));
}

TEST_F(OutliersTest, ZerosSayNothing) {
  rounds(10, {0, 0, 0, 0});
  EXPECT_THAT(round({0, 0, 0, 5}), IsEmpty());
}

TEST_F(OutliersTest, WithoutAFactorNobodyIsLeftOut) {
  outliers = Outliers(0);
  rounds(5, {1, 1, 1, 1});
  EXPECT_THAT(round({1, 1, 1, 1e30}), IsEmpty());
  EXPECT_THAT(directions({{1, 0}, {1, 0}, {1, 0}, {-1, 0}}), IsEmpty());
}

TEST_F(OutliersTest, NoMoreIsRememberedThanIsNeeded) {
  rounds(100, {1, 1, 1, 1});
  EXPECT_EQ(known.size(), Outliers::kMemory);
}

TEST_F(OutliersTest, WhoPointsTheOtherWayIsLeftOut) {
  const auto found = directions({{1, 0.5}, {1, 0.4}, {-1, -0.5}, {1, 0.6}});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].number, 2);
  EXPECT_EQ(found[0].offence, Offence::kDirection);
  EXPECT_LT(found[0].figure, -0.9);
  EXPECT_GT(found[0].usual, 0.9);
}

TEST_F(OutliersTest, WhatHasNothingInCommonWithTheOthersIsLeftOut) {
  const Vectors vectors = {{1, 1, 0, 0, 0}, {1, 0, 1, 0, 0}, {1, 0, 0, 1, 0}, {0, 0, 0, 0, 7}};
  const auto found = directions(vectors);
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].number, 3);
  EXPECT_EQ(found[0].figure, 0);
}

TEST_F(OutliersTest, WhoIsPartlyAlignedCounts) {
  EXPECT_THAT(directions({{1, 0}, {1, 0}, {1, 0}, {1, 3}}), IsEmpty()) << "a cosine of 0.32";
  EXPECT_THAT(directions({{1, 0}, {1, 0}, {1, 0}, {1, 5}}), SizeIs(1)) << "of 0.20";
}

TEST_F(OutliersTest, WhoHasTrainedForLessIsAlignedLess) {
  const Vectors vectors = {{1, 0}, {1, 0}, {1, 0}, {1, 5}};
  EXPECT_THAT(directions(vectors, {100, 100, 100, 50}), IsEmpty());
  EXPECT_THAT(directions(vectors, {100, 100, 100, 90}), SizeIs(1));
}

TEST_F(OutliersTest, OfThreeDirectionsNobodyCanTellWhichIsWrong) {
  EXPECT_THAT(directions({{1, 0}, {1, 0}, {-1, 0}}), IsEmpty());
}

TEST_F(OutliersTest, WhereLittleIsInCommonNobodyIsJudgedByIt) {
  const Vectors vectors = {{1, 12, 0, 0, 0}, {1, 0, 12, 0, 0}, {1, 0, 0, 12, 0}, {-1, 0, 0, 0, 12}};
  EXPECT_THAT(directions(vectors), IsEmpty());
}

TEST_F(OutliersTest, WhatMayBeChanceAmongFewValuesIsNoOffence) {
  const Vectors vectors = {{1, 1, 0, 0, 0}, {1, 0, 1, 0, 0}, {1, 0, 0, 1, 0}, {0, 0, 0, 0, 7}};
  EXPECT_THAT(directions(vectors, {}, 1000), SizeIs(1));
  EXPECT_THAT(directions(vectors, {}, 60), IsEmpty());
}

/// Its size says nothing about the others' direction.
TEST_F(OutliersTest, WhoIsTooLargeDoesNotTurnTheMean) {
  const Vectors vectors = {{1, 0}, {1, 0}, {1, 0}, {1, 0.1}, {-1, 0}};
  std::vector<Contributed> all;
  for (int32_t i = 0; i < 5; ++i) all.push_back({i, i == 4 ? 1e20 : 1.0});
  EXPECT_THAT(commit(all, compare(vectors)), ElementsAre(4));
  EXPECT_EQ(last[0].offence, Offence::kNorm);
}

TEST_F(OutliersTest, AgreesWithItsDefinition) {
  std::mt19937 random(1);
  const auto draw = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  std::normal_distribution<double> normal;
  size_t num_too_large = 0;
  size_t num_turned_away = 0;
  for (int run = 0; run < 60; ++run) {
    known.clear();
    OutlierDefinition definition;
    for (int i = 0; i < 60; ++i) {
      std::vector<OutlierDefinition::Vector> vectors;
      std::vector<Contributed> all;
      for (int32_t number = 0; number < 7; ++number) {
        if (draw(4) == 0) continue;
        const bool is_large = draw(6) == 0 || (number == 5 && i > 30);
        const double sign = draw(6) == 0 ? -1 : 1;
        OutlierDefinition::Vector vector(500);
        const double noise = draw(8) == 0 ? 30 : 1;
        for (float& value : vector) value = static_cast<float>(sign + noise * normal(random));
        double square = 0;
        for (const float value : vector) square += static_cast<double>(value) * value;
        const double size = (is_large ? 30 : 1) * (1 + draw(100) / 100.0) / std::sqrt(square);
        for (float& value : vector) value *= static_cast<float>(size);
        vectors.push_back(vector);
        all.push_back({number, size * std::sqrt(square), 50 + draw(100)});
      }
      std::set<int32_t> left_out;
      const std::set<int32_t> expected = definition.judge(0, all, vectors);
      Vectors doubles;
      for (const auto& vector : vectors) doubles.emplace_back(vector.begin(), vector.end());
      for (const auto& outlier : outliers.judge(known, all, compare(doubles, 500))) {
        left_out.insert(outlier.number);
        (outlier.offence == Offence::kNorm ? num_too_large : num_turned_away) += 1;
      }
      ASSERT_EQ(left_out, expected) << "run " << run << ", round " << i;
      definition.past.push_back({0, all, left_out});
      for (const Contributed& one : all) {
        if (!left_out.contains(one.number)) Outliers::remember(known, one);
      }
    }
  }
  EXPECT_GT(num_too_large, 100U);
  EXPECT_GT(num_turned_away, 100U);
}

}  // namespace
}  // namespace atl::swarm
