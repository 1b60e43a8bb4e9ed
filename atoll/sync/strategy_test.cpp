// Identities of the methods on a toy problem: replica i minimises |theta - target_i|^2 / 2.
#include "atoll/sync/strategy.h"

#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "atoll/base/error.h"
#include "atoll/method/method.h"
#include "atoll/method/outer_gradient.h"
#include "atoll/testing/thread_group.h"
#include "atoll/testing_torch/toy_run.h"

namespace atl::sync {
namespace {

bool nearly_equal(const at::Tensor& a, const at::Tensor& b) {
  return at::allclose(a, b, /*rtol=*/1e-6, /*atol=*/1e-6);
}

/// The live parameters after `steps` steps that replica `rank` makes alone.
at::Tensor train_alone(const method::SyncOptions& options, int rank, int64_t steps) {
  collective::Alone alone;
  return toy::train(options, alone, rank, steps).live_TP.back();
}

method::SyncOptions plain_outer(int64_t sync_every) {
  return {.method = "diloco", .sync_every = sync_every, .outer_lr = 1.0, .outer_momentum = 0.0};
}

TEST(StrategyTest, DiLoCoEveryStepWithPlainSgdIsDataParallel) {
  const auto diloco = toy::train_together(plain_outer(1), 2, 7);
  const auto parallel = toy::train_together({.method = "data_parallel"}, 2, 7);
  EXPECT_TRUE(nearly_equal(diloco[0].live_TP.back(), parallel[0].live_TP.back()));
}

TEST(StrategyTest, AloneWithPlainOuterSgdIsLocalTraining) {
  EXPECT_TRUE(
      nearly_equal(train_alone(plain_outer(3), 0, 9), train_alone({.method = "single"}, 0, 9)));
}

TEST(StrategyTest, TwoReplicasOnEqualDataAreOne) {
  const method::SyncOptions options{.method = "diloco", .sync_every = 2};
  const auto two = toy::train_together(options, 2, 8, [](int) { return 0; });
  EXPECT_TRUE(nearly_equal(two[0].live_TP.back(), train_alone(options, 0, 8)));
}

TEST(StrategyTest, ReplicasHoldTheSameBitsAfterASync) {
  const auto out = toy::train_together({.method = "diloco", .sync_every = 3}, 3, 6);
  for (const auto& outcome : out) {
    EXPECT_TRUE(outcome.live_TP.back().equal(out[0].live_TP.back()));
    EXPECT_EQ(outcome.stats.digest, out[0].stats.digest);
    EXPECT_EQ(outcome.stats.rounds, 2);
  }
}

TEST(StrategyTest, TheLastStepSyncsEvenInsideAPeriod) {
  const auto out = toy::train_together({.method = "diloco", .sync_every = 4}, 2, 6);
  EXPECT_EQ(out[0].stats.rounds, 2);
  EXPECT_TRUE(out[0].live_TP.back().equal(out[1].live_TP.back()));
}

TEST(StrategyTest, BetweenSyncsTheGlobalCopyStaysWhereItWas) {
  collective::Alone alone;
  const auto out = toy::train(plain_outer(5), alone, 0, 4, /*last_step=*/10);
  EXPECT_TRUE(out.global_TP.back().equal(toy::start_P()));
  EXPECT_FALSE(out.live_TP.back().equal(toy::start_P()));
}

TEST(StrategyTest, SingleRefusesCompany) {
  collective::ThreadGroup group(2);
  const auto averager = group.member(0);
  const SystemClock clock;
  EXPECT_THROW(make_strategy({.method = "single"}, {.values_P = toy::start_P()}, *averager, clock),
               UsageError);
}

TEST(StrategyTest, EveryMethodOfTheTableTrains) {
  for (const method::Method& method : method::methods()) {
    const method::SyncOptions options{.method = std::string(method.name), .sync_every = 4};
    EXPECT_FALSE(train_alone(options, 0, 8).equal(toy::start_P())) << method.name;
  }
}

/// The other processes of an island get the parameters where they changed, and only there.
TEST(StrategyTest, ChangesOfTheLiveParametersAreCountedAndNothingElse) {
  for (const method::Method& method : method::methods()) {
    if (method.is_for_one) continue;
    const method::SyncOptions options{.method = std::string(method.name), .sync_every = 4};
    toy::run_together(2, [&](int rank, collective::Averager& averager) {
      const toy::Trainee trainee(options, averager, 12, rank);
      for (int64_t step = 1; step <= 12; ++step) {
        trainee.gradients_P.copy_(trainee.values_P.sub(toy::target_P(rank)));
        EXPECT_TRUE(trainee.strategy->reduce_gradients(step));
        trainee.values_P.sub_(trainee.gradients_P, toy::kLr);
        const at::Tensor before_P = trainee.values_P.clone();
        const int64_t num_changes = trainee.strategy->num_changes();
        EXPECT_TRUE(trainee.strategy->after_step(step));
        EXPECT_EQ(trainee.strategy->num_changes() == num_changes, trainee.values_P.equal(before_P))
            << method.name << ", step " << step;
      }
      return true;
    });
  }
}

TEST(StrategyTest, TheTableKnowsWhoCanGiveItsStateAway) {
  for (const method::Method& method : method::methods()) {
    collective::Alone alone;
    const toy::Trainee trainee({.method = std::string(method.name), .sync_every = 4}, alone, 8);
    EXPECT_EQ(trainee.strategy->state_bytes(0) > 0, method.takes_newcomers) << method.name;
  }
}

TEST(StrategyTest, AbstainingEndsWithTheNextRound) {
  for (const method::Method& method : method::methods()) {
    if (method.is_for_one) continue;  // Has no rounds.
    const method::SyncOptions options{
        .method = std::string(method.name), .sync_every = 4, .fragment_sync_delay = 1};
    const auto out = toy::advance_together(options, {}, 0, 8, /*last_step=*/8, /*abstains_at=*/3);
    EXPECT_FALSE(out[1].abstains) << method.name;
  }
}

/// A run whose coordinator leaves this replica out of one round.
class LeavesOut final : public collective::Averager {
 public:
  explicit LeavesOut(int64_t round) : round_(round) {}
  int num_members() const override { return 1; }
  void begin(collective::Contribution contribution) override {
    if (contribution.round == round_) contribution.weight = 0;
    alone_.begin(std::move(contribution));
  }
  Result<collective::Commit> wait(int64_t round) override {
    auto commit = alone_.wait(round);
    commit->left_out = round == round_;
    return commit;
  }
  collective::ExchangeStats stats() const override { return {}; }

 private:
  collective::Alone alone_;
  int64_t round_;
};

TEST(StrategyTest, WhatIsLeftOutIsUnlearnedAsIfTheReplicaHadAbstained) {
  for (const char* method : {"diloco", "streaming_diloco", "sparse_loco"}) {
    const method::SyncOptions options{.method = method,
                                      .sync_every = 4,
                                      .num_fragments = 1,
                                      .fragment_sync_delay = 0,
                                      .fragment_update_alpha = 0.5};
    LeavesOut others(1);  // Steps 5 to 8.
    collective::Alone alone;
    const toy::Trainee left_out(options, others, 12);
    const toy::Trainee abstaining(options, alone, 12);
    const toy::Trainee counted(options, alone, 12);
    for (int64_t step = 1; step <= 8; ++step) {
      left_out.train(step);
      abstaining.train(step, /*abstains=*/step == 6);
    }
    for (int64_t step = 1; step <= 8; ++step) counted.train(step);
    EXPECT_TRUE(left_out.values_P.equal(abstaining.values_P)) << method;
    EXPECT_FALSE(left_out.values_P.equal(counted.values_P)) << method;
    const auto state = left_out.strategy->state();
    for (size_t i = 0; i < state.size(); ++i) {
      EXPECT_TRUE(state[i].second.equal(abstaining.strategy->state()[i].second)) << method;
    }
    EXPECT_TRUE(left_out.strategy->take_rounds().at(1).abstained) << method;
  }
}

TEST(StrategyTest, WhatIsLeftOutOfAStepIsNotSentAgain) {
  for (const char* method : {"data_parallel", "cocktail_sgd", "demo"}) {
    const method::SyncOptions options{
        .method = method,
        .fragment_sync_delay = 0,
        .codec = std::string_view(method) == "data_parallel" ? "rolling(0.5)+fp32" : "default"};
    LeavesOut others(1);
    const toy::Trainee replica(options, others, 9);
    replica.train(1);
    const at::Tensor kept_P = replica.strategy->state().front().second.clone();
    replica.train(2);
    const at::Tensor state_P = replica.strategy->state().front().second;
    const bool keeps = options.method != "demo";
    EXPECT_TRUE(state_P.equal(keeps ? kept_P : at::zeros_like(kept_P))) << method;
    EXPECT_TRUE(replica.values_P.equal(replica.strategy->global_parameters())) << method;
  }
}

/// Two replicas for a few rounds with and without the settings of `change`.
void expect_other_result(const std::function<void(method::SyncOptions&)>& change) {
  method::SyncOptions options{.method = "diloco", .sync_every = 2};
  const auto before = toy::train_together(options, 2, 8);
  change(options);
  const auto after = toy::train_together(options, 2, 8);
  EXPECT_TRUE(after[0].global_TP.back().equal(after[1].global_TP.back()));
  EXPECT_FALSE(after[0].global_TP.back().equal(before[0].global_TP.back()));
}

TEST(StrategyTest, EveryOuterSettingReachesTheMethodAndKeepsReplicasEqual) {
  expect_other_result([](method::SyncOptions& options) { options.outer_optimizer = "sgd"; });
  expect_other_result([](method::SyncOptions& options) { options.outer_optimizer = "heavy_ball"; });
  expect_other_result([](method::SyncOptions& options) { options.outer_optimizer = "adam"; });
  expect_other_result([](method::SyncOptions& options) { options.outer_mean = "radial"; });
  expect_other_result([](method::SyncOptions& options) { options.sign_pruning = 0.5; });
}

TEST(StrategyTest, TheRadialMeanOfEqualReplicasIsTheirMean) {
  method::SyncOptions options{.method = "diloco", .sync_every = 2};
  const auto plain = toy::train_together(options, 2, 8, [](int) { return 0; });
  options.outer_mean = "radial";
  const auto radial = toy::train_together(options, 2, 8, [](int) { return 0; });
  EXPECT_TRUE(at::allclose(plain[0].live_TP.back(), radial[0].live_TP.back(), 1e-5, 1e-5));
}

TEST(StrategyTest, ADroppedReplicaGoesOnFromItsOwnParameters) {
  method::SyncOptions options = plain_outer(4);
  // A share under which exactly one of the two is left out of the first and only round.
  const auto drops = [&](int rank) {
    return method::is_dropped(options.outer_dropout, 0, 0, rank);
  };
  while (drops(0) == drops(1)) options.outer_dropout += 0.01;
  const size_t dropped = drops(0) ? 0 : 1;
  const size_t kept = 1 - dropped;
  const auto out = toy::train_together(options, 2, 4);
  const auto local = [](size_t rank) {
    return train_alone({.method = "single"}, static_cast<int>(rank), 4);
  };
  EXPECT_TRUE(nearly_equal(out[kept].live_TP.back(), local(kept)));  // The mean of one.
  EXPECT_TRUE(out[0].global_TP.back().equal(out[1].global_TP.back()));
  EXPECT_TRUE(out[dropped].live_TP.back().equal(local(dropped)));
}

}  // namespace
}  // namespace atl::sync
