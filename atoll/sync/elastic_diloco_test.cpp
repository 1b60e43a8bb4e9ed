// DiLoCo in elastic pace, against its definition: a run whose commits come when the test says so.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>

#include "atoll/codec/codec.h"
#include "atoll/collective/round_result.h"
#include "atoll/sync/diloco.h"
#include "atoll/sync/method.h"

namespace atl::sync {
namespace {

constexpr int64_t kSize = 4;
constexpr int64_t kTokens = 10;  // Of a step.

/// The run as a member sees it; the test is its coordinator.
class ScriptedRun final : public collective::Averager {
 public:
  int num_members() const override { return 2; }
  void begin(collective::Contribution contribution) override {
    begun.emplace(contribution.round, std::move(contribution));
  }
  bool is_decided(int64_t round) const override { return commits_.contains(round); }
  Result<collective::Commit> wait(int64_t round) override {
    if (!commits_.contains(round)) throw std::logic_error("a member of elastic pace waits");
    return std::move(commits_.extract(round).mapped());
  }
  std::optional<collective::Commit> take_missed() override {
    if (missed_.empty()) return std::nullopt;
    auto commit = std::move(missed_.front());
    missed_.pop_front();
    return commit;
  }
  std::optional<collective::DueRound> take_due() override { return std::exchange(due, {}); }
  collective::ExchangeStats stats() const override { return {}; }

  /// The round's mean is `mean` in all its values; this member had a part in it, or was left out.
  void commit(int64_t round, int64_t step, float mean, bool left_out = false) {
    const std::vector<float> values(kSize, mean);
    const Digest digest = begun.at(round).prepare(values, {});
    commits_[round] = {.round = round, .step = step, .digest = digest, .left_out = left_out};
  }
  /// The same without this member. It begun it, or has not heard of it.
  void commit_without(int64_t round, int64_t step, float mean, const Digest& digest) {
    collective::Commit commit{.round = round, .step = step, .digest = digest, .included = false};
    commit.record = record(round, step, mean, digest);
    commit.missed = true;
    if (begun.contains(round)) {
      commits_[round] = std::move(commit);
    } else {
      missed_.push_back(std::move(commit));
    }
  }

  std::optional<collective::DueRound> due;
  std::map<int64_t, collective::Contribution> begun;

 private:
  static std::shared_ptr<const collective::CommittedRound> record(int64_t round, int64_t step,
                                                                  float mean,
                                                                  const Digest& digest) {
    auto out = std::make_shared<collective::CommittedRound>();
    *out = {.round = round,
            .step = step,
            .digest = digest,
            .count = kSize,
            .segment_values = kSize,
            .members = {1},
            .weights = {1}};
    const auto bytes = std::make_shared<Bytes>();
    codec::make_codec("fp32")->encode(std::vector<float>(kSize, mean), *bytes,
                                      static_cast<uint32_t>(round));
    out->result.segments.push_back({{collective::kMeanKey, {bytes, *bytes}}});
    return out;
  }

  std::map<int64_t, collective::Commit> commits_;
  std::deque<collective::Commit> missed_;
};

/// With the outer step new = old - mean, so that every number is by hand.
class ElasticDiLoCoTest : public testing::Test {
 protected:
  static SyncOptions options() {
    return {.method = "diloco",
            .sync_every = 4,
            .outer_lr = 1,
            .outer_momentum = 0,
            .outer_optimizer = "sgd",
            .codec = "fp32"};
  }
  Replica replica() {
    return {.values_P = live_P,
            .gradients_P = at::full({kSize}, 0.0F),
            .tokens_per_step = kTokens,
            .last_step = 100,
            .is_elastic = true};
  }
  /// A step that lowers each parameter by 1.
  void train(int64_t steps = 1) {
    for (int64_t i = 0; i < steps; ++i) {
      step = strategy.catch_up(step).value();
      live_P.sub_(1);
      step = strategy.step_after(step);
      ASSERT_TRUE(strategy.after_step(step));
    }
  }
  float live() const { return live_P[0].item<float>(); }
  float global() const { return strategy.global_parameters()[0].item<float>(); }

  at::Tensor live_P = at::full({kSize}, 100.0F);
  ScriptedRun run;
  SystemClock clock;
  SyncOptions options_ = options();
  DiLoCo strategy{options_, replica(), run, clock};
  int64_t step = 0;
};

TEST_F(ElasticDiLoCoTest, TrainingGoesOnAndKeepsWhatItLearnedMeanwhile) {
  train(3);
  EXPECT_TRUE(run.begun.empty()) << "nothing is due before the run says so";
  run.due = {.round = 0, .step = 5};
  train();
  ASSERT_TRUE(run.begun.contains(0));
  const auto& sent = run.begun.at(0);
  EXPECT_EQ(sent.weight, 4 * kTokens);
  EXPECT_EQ(sent.step, 5);
  EXPECT_EQ(sent.values[0], 4.0F) << "global 100 - live 96";
  train(2);
  EXPECT_EQ(live(), 94);
  EXPECT_EQ(global(), 100);
  run.commit(0, 9, 7);  // The others did more.
  train();
  EXPECT_EQ(global(), 93);
  EXPECT_EQ(live(), 90) << "global 93, less the three steps since the snapshot";
  EXPECT_EQ(strategy.published_step(step), 9);
  run.due = {.round = 1, .base = 0, .step = 15};
  train();
  EXPECT_EQ(run.begun.at(1).weight, 4 * kTokens) << "no step twice";
  EXPECT_EQ(run.begun.at(1).values[0], 4.0F);
}

TEST_F(ElasticDiLoCoTest, WhoWasLateCountsInTheNextRound) {
  train(2);
  run.due = {.round = 0, .step = 4};
  train();
  Digest digest{};
  {  // What the others have after a mean of 5.
    const std::vector<float> mean(kSize, 5.0F);
    digest = run.begun.at(0).prepare(mean, {});
  }
  run.commit_without(0, 4, 5, digest);
  train();
  EXPECT_EQ(global(), 95);
  EXPECT_EQ(live(), 91) << "100 - 4 steps - what the others learned";
  run.due = {.round = 1, .base = 0, .step = 8};
  train();
  EXPECT_EQ(run.begun.at(1).weight, 5 * kTokens) << "all its steps";
  EXPECT_EQ(run.begun.at(1).values[0], 5.0F);
}

TEST_F(ElasticDiLoCoTest, ASnapshotRestsOnTheResultBeforeIt) {
  run.due = {.round = 1, .base = 0, .step = 8};
  train();
  EXPECT_TRUE(run.begun.empty()) << "round 0 is not here yet";
  at::Tensor other_P = at::full({kSize}, 100.0F);
  ScriptedRun others;
  Replica theirs = replica();
  theirs.values_P = other_P;
  DiLoCo other(options_, theirs, others, clock);
  others.due = {.round = 0, .step = 4};
  ASSERT_TRUE(other.after_step(1));
  others.commit(0, 4, 5);
  const Digest digest = others.wait(0).value().digest;
  run.commit_without(0, 4, 5, digest);
  train();
  EXPECT_EQ(global(), 95);
  ASSERT_TRUE(run.begun.contains(1));
  EXPECT_EQ(run.begun.at(1).values[0], 2.0F);
}

TEST_F(ElasticDiLoCoTest, WhatCannotBeSentIsDropped) {
  train();
  live_P.fill_(std::numeric_limits<float>::quiet_NaN());
  run.due = {.round = 0, .step = 4};
  train();
  EXPECT_EQ(run.begun.at(0).weight, 0);
  run.commit(0, 4, 5);
  train();
  EXPECT_EQ(live(), 95);
}

TEST_F(ElasticDiLoCoTest, WhatWasLeftOutIsDropped) {
  train(3);
  run.due = {.round = 0, .step = 4};
  train();
  EXPECT_GT(run.begun.at(0).weight, 0);
  run.commit(0, 4, 5, /*left_out=*/true);
  train();
  EXPECT_EQ(live(), 95);
  run.due = {.round = 1, .base = 0, .step = 8};
  train();
  EXPECT_EQ(run.begun.at(1).weight, kTokens) << "only what was learned since";
}

TEST_F(ElasticDiLoCoTest, TheLastCommitEndsTheRun) {
  run.due = {.round = 0, .step = 100};
  train();
  run.commit(0, 100, 5);
  train();
  EXPECT_EQ(strategy.catch_up(step).value(), 100);
}

}  // namespace
}  // namespace atl::sync
