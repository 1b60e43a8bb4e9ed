// An island that leaves, and goes on from its last checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "atoll/island/comeback.h"
#include "atoll/island/holdings.h"
#include "atoll/island/training_run.h"
#include "atoll/run/round_log.h"
#include "atoll/testing_torch/small_run.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

/// Notes what is begun.
class Noting final : public collective::Averager {
 public:
  int num_members() const override { return 1; }
  void begin(collective::Contribution contribution) override {
    begun.push_back(contribution.round);
    alone_.begin(std::move(contribution));
  }
  Result<collective::Commit> wait(int64_t round) override { return alone_.wait(round); }
  collective::ExchangeStats stats() const override { return {}; }

  std::vector<int64_t> begun;  // Rounds.

 private:
  collective::Alone alone_;
};

/// Fragments are sent after steps 4, 6, 8, 10 ..., and taken three steps later.
TEST(LeavingTest, WhatWasTakenEarlyIsNotSentAgainAfterAResume) {
  const SmallRun small;
  const fs::path folder = small.folder() / "run";
  fs::create_directories(folder);
  run::RunConfig config = SmallRun::config(14, {.method = "streaming_diloco",
                                                .sync_every = 4,
                                                .num_fragments = 2,
                                                .fragment_sync_delay = 3,
                                                .codec = "fp32"});
  Materials materials = small.materials(config);
  const SystemClock clock;
  Noting others;
  Comeback comeback(folder);
  comeback.diary().begin({.run = "that", .term = 3, .member = 1});
  run::RoundLog log(rounds_in(folder), /*most_bytes=*/1 << 20, [](const std::string&) {});
  const auto former = [&] {
    const auto holdings = holdings_in(folder, /*last_step=*/14, /*num_at_end=*/2);
    return Comeback(folder).former(holdings.rbegin()->second, "that").number;
  };
  bool leaves = false;
  int64_t leaves_after = 5;
  const auto parts = [&]() -> TrainingParts {
    return {.config = config,
            .folder = folder,
            .materials = materials,
            .averager = others,
            .clock = clock,
            .round_log = &log,
            .diary = &comeback.diary(),
            .wishes = {.leaves = [&] { return leaves; }},
            .on_step = [&](const auto& report) { leaves = leaves || report.step == leaves_after; }};
  };
  const auto left = TrainingRun(parts()).train();
  ASSERT_TRUE(left);
  EXPECT_EQ(left->steps, 11) << "both fragments are sent behind step 5, and rounds 2 and 3 taken";
  EXPECT_THAT(others.begun, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(former(), -1) << "should it be killed before anybody hears of it";

  others.begun.clear();
  leaves_after = -1;
  leaves = false;
  TrainingRun again(parts());
  again.resume(folder / "checkpoints" / "step-00000011");
  EXPECT_EQ(again.step(), 11);
  EXPECT_THAT(others.begun, IsEmpty());
  ASSERT_TRUE(again.train());
  EXPECT_THAT(others.begun, ElementsAre(4, 5, 6)) << "after step 12, and both after the last";
  EXPECT_EQ(former(), 1);
}

}  // namespace
}  // namespace atl::island
