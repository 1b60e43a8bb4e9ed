#pragma once
// For tests: runs over the simulated network that are in the middle of training, or go to the end.
#include <gtest/gtest.h>

#include <utility>

#include "atoll/testing/simulated_world.h"

namespace atl::collective {

inline Plan endless(Topology topology = Topology::kScatter) {
  Plan plan;
  plan.topology = topology;
  plan.num_islands = 3;
  plan.num_rounds = 100'000;
  return plan;
}

/// Three islands in the middle of training, that are not started again by themselves.
struct Training : World {
  explicit Training(Plan plan_in = endless()) : World(1, std::move(plan_in)) {
    start_coordinator();
    add_all();
    for (const auto& machine : machines) machine->keeps_restarting = false;
    EXPECT_TRUE(
        run_until([this] { return invariants.num_commits() > 5; }, std::chrono::seconds(60)));
  }
  ~Training() { EXPECT_EQ(invariants.broken().value_or(""), "") << log; }
  Life& life(size_t i) { return *machines[i]->life; }
  size_t commits_in(Duration time) {
    const size_t before = invariants.num_commits();
    run_for(time);
    return invariants.num_commits() - before;
  }
  bool takes_part(size_t i) {  // In what is committed from here on.
    const size_t before = life(i).contributed.size();
    run_for(std::chrono::seconds(2));
    return life(i).contributed.size() > before + 3;
  }
};

inline void expect_all_done(const World& world) {
  EXPECT_EQ(world.invariants.broken().value_or(""), "") << world.log;
  for (const auto& machine : world.machines) {
    EXPECT_TRUE(machine->done()) << machine->name << ": " << machine->life->failure;
    EXPECT_EQ(std::ssize(machine->life->applied), world.plan.num_rounds);
  }
  ASSERT_TRUE(world.result().has_value());
  EXPECT_TRUE(world.result()->has_value());
}

/// From the start, without faults.
inline void expect_all_reach_the_end(World& world) {
  world.start_coordinator();
  world.add_all();
  ASSERT_TRUE(world.run(std::chrono::seconds(60))) << world.log;
  expect_all_done(world);
}

}  // namespace atl::collective
