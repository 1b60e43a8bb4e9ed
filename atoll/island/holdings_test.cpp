// What can be gone on from: checkpoints, and the rounds after the newest.
#include "atoll/island/holdings.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "atoll/base/file.h"
#include "atoll/sync/strategy.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

Digest digest(int value) { return sha256(as_byte_span(std::to_string(value))); }

constexpr int64_t kLastStep = 100;
constexpr size_t kNumAtEnd = 2;

class HoldingsTest : public testing::Test {
 protected:
  fs::path checkpoint(int64_t step, const std::vector<Digest>& held) const {
    const fs::path path = folder_ / "checkpoints" / fmt::format("step-{:08}", step);
    fs::create_directories(path);
    std::vector<std::string> texts;
    for (const Digest& of_fragment : held) texts.push_back(hex(of_fragment));
    const nlohmann::json state = {{"format", 1},
                                  {"step", step},
                                  {"num_updates", step},
                                  {"train_loss", 1.0},
                                  {"val_loss_start", 1.0},
                                  {"val_loss_island", 1.0},
                                  {"digest", "parameters"},
                                  {"held", texts},
                                  {"store", "s"},
                                  {"codec", "bf16"},
                                  {"fragment_sync_delay", 0},
                                  {"abstains", false}};
    std::ofstream(path / "state.json") << state.dump();
    return path;
  }
  /// Of a fragment, where the fragments' digests were `held`: zeros for 0.
  void round(int64_t step, int32_t fragment, const std::vector<int>& held, int after) const {
    std::vector<Digest> digests;
    for (const int value : held) digests.push_back(value == 0 ? Digest{} : digest(value));
    run::RoundLog(rounds_in(folder_), 1 << 20, [](const std::string&) {})
        .add(std::make_shared<const collective::CommittedRound>(
                 collective::CommittedRound{.round = step,
                                            .fragment = fragment,
                                            .step = step,
                                            .digest = digest(after),
                                            .count = 1,
                                            .segment_values = 1}),
             rounds::state_name(digests));
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> found;
    for (const auto& [step, holding] : holdings_in(folder_, kLastStep, kNumAtEnd))
      found.push_back(step);
    return found;
  }

  TestFolder folder_;
};

TEST_F(HoldingsTest, NothingIsHeldInAnEmptyFolder) {
  EXPECT_THAT(steps(), IsEmpty());
  round(10, 0, {0}, 1);
  EXPECT_THAT(steps(), IsEmpty()) << "rounds without a checkpoint";
}

TEST_F(HoldingsTest, RoundsFollowWhatTheyRestOn) {
  checkpoint(0, {Digest{}});
  const auto newest = checkpoint(20, {digest(2)});
  round(20, 0, {1}, 2);  // In the checkpoint.
  round(30, 0, {2}, 3);
  round(40, 0, {3}, 4);
  round(60, 0, {5}, 6);  // One is missing before it.
  const auto holdings = holdings_in(folder_, kLastStep, kNumAtEnd);
  EXPECT_THAT(steps(), ElementsAre(0, 20, 30, 40));
  EXPECT_EQ(holdings.at(0).digest, "parameters");
  EXPECT_TRUE(holdings.at(20).rounds.empty());
  EXPECT_EQ(holdings.at(40).checkpoint, newest);
  ASSERT_EQ(holdings.at(40).rounds.size(), 2);
  EXPECT_EQ(holdings.at(40).rounds[0].step, 30);
  EXPECT_NE(holdings.at(30).digest, holdings.at(40).digest);
}

/// Who has a checkpoint of a state and who has the rounds to it name it alike.
TEST_F(HoldingsTest, OneStateHasOneName) {
  checkpoint(0, {Digest{}, Digest{}});
  round(10, 0, {0, 0}, 1);
  round(20, 1, {1, 0}, 2);
  const std::string by_rounds = holdings_in(folder_, kLastStep, kNumAtEnd).at(20).digest;
  checkpoint(20, {digest(1), digest(2)});
  EXPECT_EQ(holdings_in(folder_, kLastStep, kNumAtEnd).at(20).digest, by_rounds);
  checkpoint(20, {digest(2), digest(1)});
  EXPECT_NE(holdings_in(folder_, kLastStep, kNumAtEnd).at(20).digest, by_rounds);
}

/// A fragment's round may be committed after the checkpoint of a later step.
TEST_F(HoldingsTest, WhatWasOnItsWayComesFirst) {
  checkpoint(25, {digest(1), digest(2)});
  round(20, 1, {1, 2}, 3);
  EXPECT_THAT(steps(), ElementsAre(25));
  EXPECT_EQ(holdings_in(folder_, kLastStep, kNumAtEnd).at(25).rounds.size(), 1);
  round(30, 0, {1, 3}, 4);
  EXPECT_THAT(steps(), ElementsAre(25, 30));
  EXPECT_EQ(holdings_in(folder_, kLastStep, kNumAtEnd).at(30).rounds.size(), 2);
}

/// Where a fragment's round is missing those of the others are of no state that there ever was.
TEST_F(HoldingsTest, BehindAGapThereIsNothing) {
  checkpoint(10, {digest(1), digest(2)});
  round(20, 0, {1, 2}, 3);
  round(40, 0, {3, 5}, 6);  // Fragment 1 has gone on meanwhile.
  EXPECT_THAT(steps(), ElementsAre(10, 20));
}

TEST_F(HoldingsTest, TheLastStepIsThatOfAllFragments) {
  checkpoint(90, {digest(1), digest(2)});
  round(kLastStep, 0, {1, 2}, 3);
  EXPECT_THAT(steps(), ElementsAre(90));
  EXPECT_TRUE(holdings_in(folder_, kLastStep, 1).contains(kLastStep)) << "in elastic pace";
  round(kLastStep, 1, {3, 2}, 4);
  EXPECT_THAT(steps(), ElementsAre(90, kLastStep));
}

TEST_F(HoldingsTest, OfManyRoundsTheLastStatesAreHeld) {
  checkpoint(0, {digest(1)});
  for (int i = 1; i < 20; ++i) round(i, 0, {i}, i + 1);
  EXPECT_THAT(steps(), ElementsAre(0, 12, 13, 14, 15, 16, 17, 18, 19));
}

TEST_F(HoldingsTest, WhatTheRunDoesNotGoOnFromIsPutAway) {
  for (const int64_t step : {10, 20, 30}) checkpoint(step, {digest(1)});
  EXPECT_THAT(put_void_away(folder_, 10), ElementsAre(20, 30));
  EXPECT_THAT(steps(), ElementsAre(10));
  EXPECT_TRUE(fs::exists(folder_ / "checkpoints" / "step-00000030.void" / "state.json"));
  checkpoint(30, {digest(1)});
  EXPECT_THAT(put_void_away(folder_, 10), ElementsAre(30)) << "again";
}

TEST(CheckpointsTest, AsManyCheckpointsAreKeptAsResumingNeeds) {
  const auto kept = [](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), {"swarm.replicas=2", "sync.sync_every=20"});
    run::RunConfig config = run::load_config({}, overrides);
    run::choose_method(config, /*alone=*/false);
    run::check(config);
    return checkpoints_to_keep(config);
  };
  EXPECT_EQ(kept({"train.checkpoint_every=50"}), 3);
  EXPECT_EQ(kept({"train.checkpoint_every=50", "swarm.pace=elastic"}), 4) << "by itself";
  EXPECT_EQ(kept({"train.checkpoint_every=10", "train.keep_checkpoints=1"}), 4);
  EXPECT_EQ(kept({"train.checkpoint_every=50", "train.keep_checkpoints=9"}), 9);
  EXPECT_EQ(kept({"train.checkpoint_every=50", "train.keep_checkpoints=0"}), 0) << "all";
  EXPECT_EQ(kept({"train.checkpoint_every=0", "train.keep_checkpoints=1"}), 1);
  EXPECT_EQ(checkpoints_to_keep(run::load_config({}, {"train.checkpoint_every=1"})), 3) << "alone";
}

}  // namespace
}  // namespace atl::island
