// Identities of the methods on a toy problem: replica i minimises |theta - target_i|^2 / 2.
#include "atoll/sync/strategy.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/collective/thread_group.h"
#include "atoll/sync/method.h"
#include "atoll/sync/outer_gradient.h"

namespace atl::sync {
namespace {

constexpr double kLr = 0.1;
const std::vector<model::ParameterSpec> kSpecs = {{"matrix", {2, 2}, 0, 4, 0},
                                                  {"vector", {2}, 4, 2, -1}};

at::Tensor start() { return at::arange(6, at::kFloat).div(3); }
at::Tensor target(int rank) { return at::full({6}, 2.0 + 3.0 * rank, at::kFloat); }

struct Outcome {
  at::Tensor live_P;
  at::Tensor global_P;
  SyncStats stats;
};

/// Trains `steps` inner SGD steps with the strategy between.
Outcome train(const SyncOptions& options, collective::Averager& averager, int rank, int64_t steps,
              uint64_t seed = 0) {
  const SystemClock clock;
  const at::Tensor values_P = start();
  const at::Tensor gradients_P = at::zeros_like(values_P);
  auto strategy = make_strategy(options,
                                {.values_P = values_P,
                                 .gradients_P = gradients_P,
                                 .tokens_per_step = 8,
                                 .last_step = steps,
                                 .specs = kSpecs,
                                 .rank = rank,
                                 .seed = seed},
                                averager, clock);
  for (int64_t step = 1; step <= steps; ++step) {
    gradients_P.copy_(values_P.sub(target(rank)));
    EXPECT_TRUE(strategy->reduce_gradients(step));
    values_P.sub_(gradients_P, kLr);
    EXPECT_TRUE(strategy->after_step(step));
  }
  return {values_P, strategy->global_parameters().clone(), strategy->stats()};
}

std::vector<Outcome> train_together(const SyncOptions& options, int replicas, int64_t steps,
                                    const std::function<int(int)>& target_of, uint64_t seed = 0) {
  collective::ThreadGroup group(replicas);
  std::vector<Outcome> outcomes(static_cast<size_t>(replicas));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < replicas; ++rank) {
    threads.emplace_back([&, rank] {
      const auto averager = group.member(rank);
      outcomes[static_cast<size_t>(rank)] = train(options, *averager, target_of(rank), steps, seed);
    });
  }
  threads.clear();
  return outcomes;
}

SyncOptions plain_outer(int64_t sync_every) {
  return {.method = "diloco", .sync_every = sync_every, .outer_lr = 1.0, .outer_momentum = 0.0};
}

TEST(StrategyTest, DiLoCoEveryStepWithPlainSgdIsDataParallel) {
  const auto rank_itself = [](int rank) { return rank; };
  const auto diloco = train_together(plain_outer(1), 2, 7, rank_itself);
  const auto parallel = train_together({.method = "data_parallel"}, 2, 7, rank_itself);
  EXPECT_TRUE(at::allclose(diloco[0].live_P, parallel[0].live_P, 0, 1e-6));
}

TEST(StrategyTest, AloneWithPlainOuterSgdIsLocalTraining) {
  collective::Alone alone;
  const Outcome diloco = train(plain_outer(3), alone, 0, 9);
  const Outcome local = train({.method = "single"}, alone, 0, 9);
  EXPECT_TRUE(at::allclose(diloco.live_P, local.live_P, 0, 1e-6));
}

TEST(StrategyTest, TwoReplicasOnEqualDataAreOne) {
  const SyncOptions options{.method = "diloco", .sync_every = 2};
  const auto two = train_together(options, 2, 8, [](int) { return 0; });
  collective::Alone alone;
  const Outcome one = train(options, alone, 0, 8);
  EXPECT_TRUE(at::allclose(two[0].live_P, one.live_P, 0, 1e-6));
}

TEST(StrategyTest, ReplicasHoldTheSameBitsAfterASync) {
  const auto out =
      train_together({.method = "diloco", .sync_every = 3}, 3, 6, [](int rank) { return rank; });
  for (const Outcome& outcome : out) {
    EXPECT_TRUE(outcome.live_P.equal(out[0].live_P));
    EXPECT_EQ(outcome.stats.digest, out[0].stats.digest);
    EXPECT_EQ(outcome.stats.rounds, 2);
  }
}

TEST(StrategyTest, TheLastStepSyncsEvenInsideAPeriod) {
  const auto out =
      train_together({.method = "diloco", .sync_every = 4}, 2, 6, [](int rank) { return rank; });
  EXPECT_EQ(out[0].stats.rounds, 2);
  EXPECT_TRUE(out[0].live_P.equal(out[1].live_P));
}

TEST(StrategyTest, BetweenSyncsTheGlobalCopyStaysWhereItWas) {
  collective::Alone alone;
  const SystemClock clock;
  const at::Tensor values_P = start();
  auto strategy = make_strategy(plain_outer(5),
                                {.values_P = values_P,
                                 .gradients_P = at::zeros_like(values_P),
                                 .tokens_per_step = 1,
                                 .last_step = 10},
                                alone, clock);
  values_P.add_(1.0);
  ASSERT_TRUE(strategy->after_step(1));
  EXPECT_TRUE(strategy->global_parameters().equal(start()));
}

TEST(StrategyTest, SingleRefusesCompany) {
  collective::ThreadGroup group(2);
  const auto averager = group.member(0);
  const SystemClock clock;
  EXPECT_THROW(make_strategy({.method = "single"}, {.values_P = start()}, *averager, clock),
               UsageError);
}

TEST(StrategyTest, EveryMethodOfTheTableTrains) {
  for (const Method& method : methods()) {
    SCOPED_TRACE(method.name);
    collective::Alone alone;
    const SyncOptions options{
        .method = std::string(method.name), .sync_every = 4, .num_fragments = 2};
    const Outcome out = train(options, alone, 0, 8);
    EXPECT_FALSE(out.live_P.equal(start()));
  }
}

/// Two replicas for a few rounds with and without the settings of `change`.
void expect_other_result(const std::function<void(SyncOptions&)>& change) {
  SyncOptions options{.method = "diloco", .sync_every = 2};
  const auto rank_itself = [](int rank) { return rank; };
  const auto before = train_together(options, 2, 8, rank_itself);
  change(options);
  const auto after = train_together(options, 2, 8, rank_itself);
  EXPECT_TRUE(after[0].global_P.equal(after[1].global_P));
  EXPECT_FALSE(after[0].global_P.equal(before[0].global_P));
}

TEST(StrategyTest, EveryOuterSettingReachesTheMethodAndKeepsReplicasEqual) {
  expect_other_result([](SyncOptions& options) { options.outer_optimizer = "sgd"; });
  expect_other_result([](SyncOptions& options) { options.outer_optimizer = "heavy_ball"; });
  expect_other_result([](SyncOptions& options) { options.outer_optimizer = "adam"; });
  expect_other_result([](SyncOptions& options) { options.outer_mean = "radial"; });
  expect_other_result([](SyncOptions& options) { options.sign_pruning = 0.5; });
}

TEST(StrategyTest, TheRadialMeanOfEqualReplicasIsTheirMean) {
  SyncOptions options{.method = "diloco", .sync_every = 2};
  const auto plain = train_together(options, 2, 8, [](int) { return 0; });
  options.outer_mean = "radial";
  const auto radial = train_together(options, 2, 8, [](int) { return 0; });
  EXPECT_TRUE(at::allclose(plain[0].live_P, radial[0].live_P, 0, 1e-5));
}

TEST(StrategyTest, ADroppedReplicaGoesOnFromItsOwnParameters) {
  // A seed under which exactly one of the two is left out of the first and only round.
  uint64_t seed = 0;
  while (is_dropped(0.5, seed, 0, 0) || !is_dropped(0.5, seed, 0, 1)) ++seed;
  SyncOptions options = plain_outer(4);
  options.outer_dropout = 0.5;
  const auto out = train_together(options, 2, 4, [](int rank) { return rank; }, seed);
  collective::Alone alone;
  const Outcome kept = train({.method = "single"}, alone, 0, 4);
  const Outcome left_out = train({.method = "single"}, alone, 1, 4);
  EXPECT_TRUE(at::allclose(out[0].live_P, kept.live_P, 0, 1e-6));  // The mean of one.
  EXPECT_TRUE(out[0].global_P.equal(out[1].global_P));
  EXPECT_TRUE(out[1].live_P.equal(left_out.live_P));
}

}  // namespace
}  // namespace atl::sync
