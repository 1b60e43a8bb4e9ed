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
  double whole_after_s = 0;
  double share_of_bound = 1;
  int moves_at_rest = 0;
  int late_moves = 0;
};

Outcome outcome_of(uint64_t seed, int most_servers, bool coordinator_dies) {
  SimulatedServers world(seed, 8 + static_cast<int32_t>(seed % 5) * 12, 12);
  for (int i = 0; i < most_servers / 2; ++i) world.join();
  churn(world, most_servers, coordinator_dies);
  Outcome outcome;
  const Time rest = world.now();
  const int moves = world.num_moves();
  const bool suffices = world.room() >= (8 + static_cast<int32_t>(seed % 5) * 12);
  while (suffices && !world.is_whole() && world.now() < rest + seconds(300)) {
    world.run(milliseconds(500));
  }
  outcome.whole_after_s = atl::seconds(world.now() - rest);
  world.run(seconds(240) - (world.now() - rest));
  outcome.moves_at_rest = world.num_moves() - moves;
  world.run(seconds(60));
  outcome.late_moves = world.num_moves() - moves - outcome.moves_at_rest;
  EXPECT_EQ(world.fault(), "") << "seed " << seed;
  EXPECT_EQ(world.is_whole(), suffices) << "seed " << seed;
  EXPECT_TRUE(world.watchers_know()) << "seed " << seed;
  if (suffices) outcome.share_of_bound = world.share_of_bound();
  return outcome;
}

void hold(uint64_t num_seeds, int most_servers, bool coordinator_dies) {
  std::vector<double> whole, share, moves, late;
  for (uint64_t seed = 1; seed <= num_seeds; ++seed) {
    const Outcome outcome = outcome_of(seed, most_servers, coordinator_dies);
    whole.push_back(outcome.whole_after_s);
    share.push_back(outcome.share_of_bound);
    moves.push_back(outcome.moves_at_rest);
    late.push_back(outcome.late_moves);
  }
  for (auto* v : {&whole, &share, &moves, &late}) {
    std::ranges::sort(*v);
    for (double q : {0.0, 0.01, 0.1, 0.5, 0.9, 0.99}) printf("%8.3f ", (*v)[size_t(q * double(v->size()))]);
    printf("%8.3f\n", v->back());
  }
}

TEST(DirectorySimulationTest, Few) { hold(100, 12, true); }
TEST(DirectorySimulationTest, Many) { hold(30, 100, true); }

}  // namespace
}  // namespace atl::chain
