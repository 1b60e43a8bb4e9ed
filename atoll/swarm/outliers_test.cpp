#include "atoll/swarm/outliers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "atoll/testing/outlier_definition.h"

namespace atl::swarm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Contributed = Outliers::Contributed;

class OutliersTest : public testing::Test {
 protected:
  /// A round of members 0, 1, ... with these norms: who was left out; the rest is committed.
  std::vector<int32_t> round(const std::vector<double>& norms, int32_t fragment = 0) {
    std::vector<Contributed> all;
    for (size_t i = 0; i < norms.size(); ++i) all.push_back({static_cast<int32_t>(i), norms[i]});
    last = outliers.judge(fragment, all);
    std::vector<int32_t> numbers;
    for (const auto& outlier : last) {
      numbers.push_back(outlier.number);
      std::erase_if(all, [&](const auto& one) { return one.number == outlier.number; });
    }
    outliers.committed(fragment, all);
    return numbers;
  }
  void rounds(int count, const std::vector<double>& norms) {
    for (int i = 0; i < count; ++i) EXPECT_THAT(round(norms), IsEmpty());
  }

  Outliers outliers{10};
  std::vector<Outliers::Outlier> last;
};

TEST_F(OutliersTest, WhoIsFarAboveTheMedianIsLeftOut) {
  rounds(3, {1, 2, 3, 4});
  EXPECT_THAT(round({1, 2, 25, 4}), IsEmpty()) << "10 times 2.5 is not over it";
  EXPECT_THAT(round({1, 26, 3, 4}), ElementsAre(1));
  EXPECT_EQ(last[0].norm, 26);
  EXPECT_EQ(last[0].usual, 2.5);
}

/// As in elastic pace after a round that took long.
TEST_F(OutliersTest, WhoHasTrainedForLongerMayHaveGoneFurther) {
  const auto judge = [&](double norm, int64_t weight) {
    return outliers.judge(
        0, std::vector<Contributed>{{0, norm, weight}, {1, 1, 100}, {2, 1, 100}, {3, 1, 100}});
  };
  for (int i = 0; i < 3; ++i) {
    outliers.committed(
        0, std::vector<Contributed>{{0, 1, 100}, {1, 1, 100}, {2, 1, 100}, {3, 1, 100}});
  }
  EXPECT_THAT(judge(16, 1300), IsEmpty());
  EXPECT_THAT(judge(3, 10), IsEmpty()) << "few tokens, and not far";
  EXPECT_EQ(judge(16, 150).size(), 1);
}

TEST_F(OutliersTest, NobodyIsJudgedByFewNorms) {
  rounds(1, {1, 1, 1, 1});
  EXPECT_THAT(round({1, 1, 1, 100}), IsEmpty()) << "four are known";
  EXPECT_THAT(round({1, 1, 1, 100}), ElementsAre(3)) << "eight";
}

TEST_F(OutliersTest, BelowFourContributorsEachIsJudgedByItsOwnNorms) {
  rounds(5, {1, 100, 1});
  EXPECT_THAT(round({1, 100, 100}), ElementsAre(2));
  EXPECT_THAT(round({1, 1100, 1}), ElementsAre(1));
}

TEST_F(OutliersTest, ANewcomerAmongFewIsNotJudged) {
  rounds(10, {1, 1});
  EXPECT_THAT(round({1, 1, 500}), IsEmpty());
}

TEST_F(OutliersTest, FragmentsHaveTheirOwnNorms) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_THAT(round({1, 1, 1, 1}, 0), IsEmpty());
    EXPECT_THAT(round({100, 100, 100, 100}, 1), IsEmpty());
  }
  EXPECT_THAT(round({1, 1, 1, 100}, 0), ElementsAre(3));
}

TEST_F(OutliersTest, WhenMostAreLargeTheRunHasChanged) {
  rounds(5, {1, 1, 1, 1});
  EXPECT_THAT(round({50, 50, 1, 1}), ElementsAre(0, 1));
  EXPECT_THAT(round({50, 50, 50, 1}), IsEmpty());
  EXPECT_THAT(round({50, 50, 50, 50}), IsEmpty());
}

TEST_F(OutliersTest, OneThatIsAloneIsNeverLeftOut) {
  rounds(5, {1});
  EXPECT_THAT(round({1e9}), IsEmpty());
}

TEST_F(OutliersTest, WhatStaysLargeIsTakenAfterThreeRounds) {
  rounds(5, {1, 1, 1, 1});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(round({1, 1, 1, 50}), ElementsAre(3));
  rounds(4, {1, 1, 1, 50});
  rounds(1, {1, 1, 1, 1});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(round({1, 1, 1, 50}), ElementsAre(3)) << "anew";
}

TEST_F(OutliersTest, ZerosSayNothing) {
  rounds(10, {0, 0, 0, 0});
  EXPECT_THAT(round({0, 0, 0, 5}), IsEmpty());
}

TEST_F(OutliersTest, WithoutAFactorNobodyIsLeftOut) {
  outliers = Outliers(0);
  rounds(5, {1, 1, 1, 1});
  EXPECT_THAT(round({1, 1, 1, 1e30}), IsEmpty());
}

TEST_F(OutliersTest, WhoIsForgottenIsNotJudgedByWhatItWas) {
  rounds(5, {1, 1});
  outliers.forget(1);
  EXPECT_THAT(round({1, 50}), IsEmpty());
  EXPECT_THAT(round({50, 50}), ElementsAre(0));
}

TEST_F(OutliersTest, AgreesWithItsDefinition) {
  std::mt19937 random(1);
  const auto draw = [&](int end) { return std::uniform_int_distribution<int>(0, end - 1)(random); };
  size_t num_left_out = 0;
  for (int run = 0; run < 30; ++run) {
    outliers = Outliers(10);
    OutlierDefinition definition;
    for (int i = 0; i < 120; ++i) {
      const int32_t fragment = draw(2);
      std::vector<Contributed> all;
      for (int32_t number = 0; number < 6; ++number) {
        if (draw(4) == 0) continue;
        const double large = draw(6) == 0 || (number == 5 && i > 60) ? 30 : 1;
        all.push_back({number, large * (1 + draw(100) / 100.0)});
      }
      std::set<int32_t> left_out;
      const std::set<int32_t> expected = definition.judge(fragment, all);
      for (const auto& outlier : outliers.judge(fragment, all)) left_out.insert(outlier.number);
      ASSERT_EQ(left_out, expected) << "run " << run << ", round " << i;
      num_left_out += left_out.size();
      definition.past.push_back({fragment, all, left_out});
      std::erase_if(all, [&](const auto& one) { return left_out.contains(one.number); });
      outliers.committed(fragment, all);
    }
  }
  EXPECT_GT(num_left_out, 100U);
}

}  // namespace
}  // namespace atl::swarm
