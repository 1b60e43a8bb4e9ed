// A directory with servers that come, die and move, over hundreds of seeds.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "atoll/testing/simulated_servers.h"

namespace atl::chain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

void churn(SimulatedServers& world, int most_servers, bool coordinator_dies) {
  for (int i = 0; i < 40; ++i) {
    const double choice = world.draw();
    if (choice < 0.45) {
      for (int n = world.draw(1, 6); n > 0 && world.num_alive() < most_servers; --n) world.join();
    } else if (choice < 0.65) {
      world.kill(true);
    } else if (choice < 0.85) {
      world.kill(false);
    } else if (choice < 0.97) {
      world.lose_connection();
    } else if (coordinator_dies) {
      world.restart_coordinator();
    }
    world.run(milliseconds(world.draw(0, 2000)));
  }
  while (world.num_alive() < most_servers / 2) world.join();
}

struct Outcome {
  double whole_after_s = 0;  // From the last change on; 0 where memory does not suffice.
  double share_of_bound = 1;
  int moves = 0;       // In the four minutes after the last change,
  int late_moves = 0;  // and in a minute after those.
};

Outcome outcome_of(uint64_t seed, int most_servers, bool coordinator_dies) {
  const int32_t num_layers = 8 + static_cast<int32_t>(seed % 5) * 12;
  SimulatedServers world(seed, num_layers, 12);
  for (int i = 0; i < most_servers / 2; ++i) world.join();
  churn(world, most_servers, coordinator_dies);
  Outcome outcome;
  const Time rest = world.now();
  const int moves = world.num_moves();
  const bool suffices = world.room() >= num_layers;
  while (suffices && !world.is_whole() && world.now() < rest + seconds(240)) {
    world.run(milliseconds(500));
  }
  outcome.whole_after_s = atl::seconds(world.now() - rest);
  world.run(seconds(240) - (world.now() - rest));
  outcome.moves = world.num_moves() - moves;
  world.run(seconds(60));
  outcome.late_moves = world.num_moves() - moves - outcome.moves;
  EXPECT_EQ(world.fault(), "") << "seed " << seed;
  EXPECT_EQ(world.is_whole(), suffices) << "seed " << seed;
  EXPECT_TRUE(world.watchers_know()) << "seed " << seed;
  if (suffices) outcome.share_of_bound = world.share_of_bound();
  return outcome;
}

/// The outcomes of all seeds, sorted.
struct Outcomes {
  std::vector<double> whole_after_s;
  std::vector<double> share_of_bound;
  std::vector<int> moves;
};

Outcomes outcomes_of(uint64_t num_seeds, int most_servers, bool coordinator_dies) {
  Outcomes all;
  for (uint64_t seed = 1; seed <= num_seeds; ++seed) {
    const Outcome outcome = outcome_of(seed, most_servers, coordinator_dies);
    EXPECT_EQ(outcome.late_moves, 0) << "seed " << seed;
    all.whole_after_s.push_back(outcome.whole_after_s);
    all.share_of_bound.push_back(outcome.share_of_bound);
    all.moves.push_back(outcome.moves);
  }
  std::ranges::sort(all.whole_after_s);
  std::ranges::sort(all.share_of_bound);
  std::ranges::sort(all.moves);
  return all;
}

TEST(DirectorySimulationTest, AHundredServersAreWholeAgainInSecondsAndNearTheOptimum) {
  const Outcomes all = outcomes_of(40, 100, true);
  EXPECT_LE(all.whole_after_s.back(), 10);
  EXPECT_GE(all.share_of_bound.front(), 0.6);
  EXPECT_GE(all.share_of_bound[20], 0.8);
  EXPECT_LE(all.moves.back(), 6);
}

// Where memory just suffices, each is needed where it is: then one after another moves, which takes
// up to 4 s each here, and what nobody may leave bounds what is reached.
TEST(DirectorySimulationTest, AFewServersThatJustSufficeAreWholeAgain) {
  const Outcomes all = outcomes_of(300, 12, false);
  EXPECT_LE(all.whole_after_s[270], 15);
  EXPECT_LE(all.whole_after_s.back(), 60);
  EXPECT_GE(all.share_of_bound[150], 0.6);
  EXPECT_LE(all.moves.back(), 12);
}

TEST(DirectorySimulationTest, ACoordinatorThatDiesOftenChangesNothingOfThat) {
  const Outcomes all = outcomes_of(300, 12, true);
  EXPECT_LE(all.whole_after_s.back(), 60);
  EXPECT_GE(all.share_of_bound[150], 0.6);
  EXPECT_LE(all.moves.back(), 12);
}

}  // namespace
}  // namespace atl::chain
