// A checkpoint and the rounds after it are the state of the last of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "atoll/method/method.h"
#include "atoll/testing_torch/toy_run.h"

namespace atl::sync {
namespace {

struct Logged {
  Digest before{};
  std::shared_ptr<const collective::CommittedRound> round;
};

/// A replica after each of its steps, and what it committed.
struct Diary {
  std::vector<toy::Saved> saved;            // By step.
  std::vector<std::vector<Digest>> held;    // By step.
  std::vector<std::vector<Logged>> rounds;  // That the step took in.
};

toy::Saved save(Strategy& strategy) {
  toy::Saved saved{.global_P = strategy.global_parameters().clone()};
  for (const auto& [name, tensor] : strategy.state()) saved.state.push_back(tensor.clone());
  return saved;
}

Diary keep_diary(const method::SyncOptions& options, collective::Averager& averager, int rank,
                 int64_t last_step) {
  const toy::Trainee trainee(options, averager, last_step, rank);
  Strategy& strategy = *trainee.strategy;
  Diary diary{.saved = {save(strategy)}, .held = {strategy.held()}, .rounds = {{}}};
  for (int64_t step = 1; step <= last_step; ++step) {
    trainee.train(step);
    auto& rounds = diary.rounds.emplace_back();
    for (const RoundRecord& record : strategy.take_rounds()) {
      rounds.push_back({record.before, record.commit.record});
    }
    diary.saved.push_back(save(strategy));
    diary.held.push_back(strategy.held());
  }
  return diary;
}

std::vector<method::SyncOptions> all_options() {
  std::vector<method::SyncOptions> all;
  for (const method::Method& method : method::methods()) {
    if (!method.takes_newcomers) continue;
    all.push_back({.method = std::string(method.name), .sync_every = 4});
  }
  all.push_back({.method = "streaming_diloco",
                 .sync_every = 4,
                 .num_fragments = 2,
                 .fragment_sync_delay = 1});
  all.push_back({.method = "diloco", .sync_every = 3, .outer_optimizer = "adam"});
  return all;
}

constexpr int64_t kSteps = 16;

TEST(ReplayTest, FromAnyCheckpointToTheEnd) {
  for (const method::SyncOptions& options : all_options()) {
    const auto diaries = toy::run_together(2, [&](int rank, collective::Averager& averager) {
      return keep_diary(options, averager, rank, kSteps);
    });
    const Diary& diary = diaries[1];
    for (size_t from = 0; from < diary.saved.size(); ++from) {
      collective::Alone alone;
      const toy::Trainee fresh(options, alone, kSteps, /*number=*/1);
      Strategy& strategy = *fresh.strategy;
      strategy.restore_global(diary.saved[from].global_P);
      const auto state = strategy.state();
      for (size_t i = 0; i < state.size(); ++i) state[i].second.copy_(diary.saved[from].state[i]);
      strategy.restore_held(diary.held[from]);
      for (size_t step = from + 1; step < diary.rounds.size(); ++step) {
        for (const auto& [before, round] : diary.rounds[step]) {
          const auto taken = strategy.replay(*round, before);
          ASSERT_TRUE(taken) << options.method << ": " << taken.error().message;
        }
      }
      strategy.replayed(kSteps);
      EXPECT_TRUE(strategy.global_parameters().equal(diary.saved.back().global_P))
          << options.method << " from step " << from;
      EXPECT_TRUE(fresh.values_P.equal(strategy.global_parameters())) << "trains on from there";
      EXPECT_EQ(strategy.held(), diary.held.back()) << options.method;
      EXPECT_EQ(strategy.held(), diaries[0].held.back()) << "and so does the other replica";
    }
  }
}

TEST(ReplayTest, ARoundThatDoesNotFollowIsRefused) {
  const method::SyncOptions options{.method = "diloco", .sync_every = 4};
  const auto diaries = toy::run_together(2, [&](int rank, collective::Averager& averager) {
    return keep_diary(options, averager, rank, kSteps);
  });
  std::vector<Logged> rounds;
  for (const auto& of_step : diaries[0].rounds)
    std::ranges::copy(of_step, std::back_inserter(rounds));
  ASSERT_EQ(rounds.size(), 4);
  collective::Alone alone;
  const toy::Trainee fresh(options, alone, kSteps);
  EXPECT_FALSE(fresh.strategy->replay(*rounds[1].round, rounds[1].before)) << "one is missing";
  EXPECT_TRUE(fresh.strategy->replay(*rounds[0].round, rounds[0].before));
  EXPECT_FALSE(fresh.strategy->replay(*rounds[0].round, rounds[0].before)) << "twice";
  collective::CommittedRound other = *rounds[1].round;
  other.round += 1;  // Decoded as another, or with another digest: not what was committed.
  other.digest[0] ^= std::byte{1};
  EXPECT_FALSE(fresh.strategy->replay(other, rounds[1].before)) << "makes another state";
}

TEST(ReplayTest, MethodsWithoutNewcomersHoldNothing) {
  for (const method::Method& method : method::methods()) {
    collective::Alone alone;
    const toy::Trainee trainee({.method = std::string(method.name), .sync_every = 4}, alone, 8);
    EXPECT_EQ(trainee.strategy->held().empty(), !method.takes_newcomers) << method.name;
  }
}

}  // namespace
}  // namespace atl::sync
