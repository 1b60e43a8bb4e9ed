#include "atoll/laws/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/laws/published.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::laws {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(Prediction, PublishedLaws) {
  const Prediction p = predict_published({.params = 2441216000, .replicas = 2});
  EXPECT_EQ(p.law, "joint");
  EXPECT_EQ(p.extrapolation, 1);
  EXPECT_NEAR(p.loss.value, 2.323, 0.035);
  EXPECT_LT(p.loss.low, 2.323);
  EXPECT_GT(p.loss.high, 2.323);
  // Table 10, in tokens.
  EXPECT_NEAR(p.batch_tokens->value,
              2048 * 0.00709 * std::pow(2441216000, 0.4695) * std::pow(2, 0.3399), 1);
  EXPECT_NEAR(p.inner_lr->value, 22256 * std::pow(2441216000, -0.8827) * std::pow(2, 0.2929), 1e-9);
  EXPECT_DOUBLE_EQ(p.outer_lr->value, 0.6);
}

TEST(Prediction, DataParallelHasNoOuterRate) {
  const Prediction p = predict_published({.params = 1e9, .replicas = 0});
  EXPECT_EQ(p.law, "independent");
  EXPECT_FALSE(p.outer_lr);
  EXPECT_NEAR(p.batch_tokens->value, 2048 * 0.22592 * std::pow(1e9, 0.281), 1);
  EXPECT_THAT(message_of([] {
                predict_published({.params = 1e9, .replicas = 0, .law = LawChoice::kJoint});
              }),
              HasSubstr("no part of the joint law"));
}

// Scaling Laws for DiLoCo, Table 12: sizes that no law was fitted to.
TEST(Prediction, RangesHoldTheLargerModelsOfThePaper) {
  struct Row {
    double params, replicas, loss;
  };
  for (const Row& row :
       {Row{4175167488, 0, 2.224}, Row{4175167488, 1, 2.219}, Row{4175167488, 2, 2.220},
        Row{4175167488, 4, 2.230}, Row{9794748416, 0, 2.090}, Row{9794748416, 1, 2.086},
        Row{9794748416, 2, 2.086}, Row{9794748416, 4, 2.096}}) {
    const Prediction p = predict_published({.params = row.params, .replicas = row.replicas});
    EXPECT_LT(p.loss.low, row.loss) << row.params << " " << row.replicas;
    EXPECT_GT(p.loss.high, row.loss) << row.params << " " << row.replicas;
    EXPECT_NEAR(p.extrapolation, row.params / 2441216000, 1e-9);
    EXPECT_LT(p.loss.high / p.loss.low, 1.12);  // And say something.
  }
}

TEST(Prediction, SaysByHowMuchItExtrapolates) {
  Question question{.params = 1e6, .replicas = 16};
  const Prediction p = predict_published(question);
  EXPECT_NEAR(p.extrapolation, 35.258368, 1e-9);
  EXPECT_EQ(p.replicas_extrapolation, 2);
  EXPECT_THAT(extrapolation_warning(p, question), HasSubstr("35.3 times below the smallest"));
  EXPECT_THAT(extrapolation_warning(p, question), HasSubstr("2 times as many"));
}

std::vector<laws::Run> own_sweeps() {
  std::vector<laws::Run> runs;
  for (const double m : {1.0, 2.0}) {
    for (const double n : {1e6, 2e6, 4e6}) {
      for (const double batch : {1024.0, 2048.0, 4096.0, 8192.0, 16384.0}) {
        const double best = 4 * std::sqrt(n) * m;
        const double away = std::log2(batch / best);
        runs.push_back({.params = n,
                        .replicas = m,
                        .loss = 20 * std::pow(n, -0.1) + 0.01 * away * away,
                        .batch = batch,
                        .lr = 1e-3,
                        .outer_lr = 0.7});
      }
    }
  }
  return runs;
}

TEST(Prediction, FromOwnRuns) {
  const Prediction p = predict_from(own_sweeps(), {.params = 3e6, .replicas = 2});
  EXPECT_NEAR(p.loss.value, 20 * std::pow(3e6, -0.1), 0.01);
  ASSERT_TRUE(p.batch_tokens);
  EXPECT_NEAR(p.batch_tokens->value, 8 * std::sqrt(3e6), 1);
  EXPECT_FALSE(p.inner_lr);
  EXPECT_DOUBLE_EQ(p.outer_lr->value, 0.7);
  ASSERT_THAT(p.missing, SizeIs(1));
  EXPECT_EQ(p.missing[0].what, "lr");
  EXPECT_THAT(p.missing[0].reason, HasSubstr("1 value"));
}

TEST(Prediction, RefusesRunsWithoutALaw) {
  const std::vector<laws::Run> two = {{.params = 1e6, .replicas = 1, .loss = 4},
                                      {.params = 2e6, .replicas = 1, .loss = 3.8}};
  EXPECT_THAT(message_of([&] { Predictor predictor(two); }), HasSubstr("too few points"));
}

/// Three sizes leave two without the largest: a line that says by how much it misses.
TEST(Prediction, TheRangeOfThreeSizesWidensToo) {
  std::vector<laws::Run> runs;
  for (const double m : {1.0, 2.0, 4.0, 8.0}) {
    // A floor: the line through the smaller sizes is too low at the largest.
    for (const double n : {1e6, 2e6, 4e6}) {
      runs.push_back({.params = n, .replicas = m, .loss = 1.5 + 30 * std::pow(n, -0.2)});
    }
  }
  const Predictor predictor(runs);
  const Prediction near = predictor.predict({.params = 2e6, .replicas = 2});
  EXPECT_EQ(near.extrapolation, 1);
  const Prediction far = predictor.predict({.params = 4e8, .replicas = 2});
  // ln of the miss at 4e6, for each unit of ln N, as by hand.
  const auto loss = [](double n) { return 1.5 + 30 * std::pow(n, -0.2); };
  const double miss = std::log(loss(4e6) * loss(1e6) / (loss(2e6) * loss(2e6))) / std::log(2.0);
  ASSERT_GT(miss, 0.004);
  EXPECT_TRUE(far.is_widened());
  EXPECT_LE(far.loss.low, far.law_loss.low / std::exp(miss * std::log(100.0)) * (1 + 1e-9));
  EXPECT_GE(far.loss.high, far.law_loss.high * std::exp(miss * std::log(100.0)) * (1 - 1e-9));
  EXPECT_GT(far.loss.high, loss(4e8));
}

TEST(Prediction, SizesThatDoNotTellReplicasApartStillWiden) {
  // Without the largest size only one number of replicas is left.
  const std::vector<laws::Run> runs = {{.params = 1e6, .replicas = 1, .loss = 4},
                                       {.params = 2e6, .replicas = 1, .loss = 3.8},
                                       {.params = 4e6, .replicas = 1, .loss = 3.65},
                                       {.params = 4e6, .replicas = 2, .loss = 3.7}};
  const Prediction p = predict_from(runs, {.params = 4e7, .replicas = 2});
  EXPECT_EQ(p.law, "joint");
  EXPECT_TRUE(p.is_widened());
}

TEST(Prediction, AJointLawHasARowToSpare) {
  const std::vector<laws::Run> runs = {
      {.params = 1e6, .replicas = 1, .loss = 4},   {.params = 2e6, .replicas = 1, .loss = 3.8},
      {.params = 4e6, .replicas = 2, .loss = 3.5}, {.params = 1e6, .replicas = 0, .loss = 4},
      {.params = 2e6, .replicas = 0, .loss = 3.8}, {.params = 4e6, .replicas = 0, .loss = 3.5}};
  EXPECT_THAT(message_of([&] { predict_from(runs, {.params = 1e6, .replicas = 4}); }),
              HasSubstr("3 rows have replicas, and it has 3 coefficients"));
}

TEST(Prediction, RefusesReplicasThatNoLawHas) {
  std::vector<laws::Run> runs;
  for (const double n : {1e6, 2e6, 4e6})
    runs.push_back({.params = n, .replicas = 2, .loss = 1e6 / n});
  EXPECT_THAT(message_of([&] { predict_from(runs, {.params = 1e6, .replicas = 4}); }),
              HasSubstr("no rows of 4 replicas, and no joint law: all rows have 2 replicas"));
  EXPECT_THAT(message_of([&] { predict_from(runs, {.params = 1e6, .replicas = 0}); }),
              HasSubstr("no rows of data-parallel"));
}

}  // namespace
}  // namespace atl::laws
