// The whole protocol (coordinator, members, exchange) over the simulated network, for hundreds of
// seeds: other sizes, speeds and faults each time. After every event the invariants are looked at
// (invariants.h). A failing seed prints the line that replays it. ATOLL_SIM_SEEDS: how many;
// ATOLL_SIM_MINUTES: for how long instead; ATOLL_SIM_FIRST: the first one; ATOLL_SIM_RESULT: a
// file for what came of them, as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "atoll/testing/faults.h"

namespace atl::collective {
namespace {

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Outcome {
  std::string broken;  // The first invariant that did not hold; empty if all did.
  std::string story;
  size_t num_commits = 0;
  double simulated_s = 0;
};

/// Everybody who is alive reaches the end in this time after the last repair.
constexpr Duration kPatience = std::chrono::seconds(900);

Outcome run_seed(uint64_t seed, Bug bug = Bug::kNone) {
  Draws draw(seed, 77);
  Plan plan = draw_plan(draw);
  plan.bug = bug;
  if (bug == Bug::kSitsStill) plan.elastic_steps = 0;  // There nobody waits for it.
  World world(seed, plan, draw_link(draw));
  world.invariants.judge_outliers(plan.elastic_steps ==
                                  0);  // There who is late may join an attempt.
  const bool skewed = draw(2) == 0;
  const auto skew = [&] {
    return skewed
               ? Skew{draw.milliseconds(0, 100'000), 0.99 + 0.0001 * static_cast<double>(draw(200))}
               : Skew{};
  };
  world.coordinator_skew = skew();
  world.start_coordinator();
  for (int i = 0; i < plan.num_islands; ++i) world.add(fmt::format("island-{}", i), {}, skew());
  Faults faults(world, draw);
  faults.plan(draw(8), std::chrono::seconds(5 + draw(40)));
  const auto over = [&] { return world.now() >= faults.over() || world.result(); };
  world.run_until(over, std::chrono::hours(1));
  const auto is_over = [&] { return world.result().has_value(); };
  bool reached = world.run_until(is_over, kPatience);
  if (!reached && !world.invariants.broken()) {
    // Those who have left may hold what the others lack, or be needed for another round.
    for (const auto& machine : world.machines) {
      if (!machine->done()) continue;
      world.kill(*machine);
      world.start(*machine);
    }
    reached = world.run_until(is_over, kPatience);
  }
  Outcome outcome{.num_commits = world.invariants.num_commits(),
                  .simulated_s = seconds(world.now() - Time{})};
  const bool was_rude = world.log.find("broke the protocol") != std::string::npos;
  if (was_rude && !faults.damages() && bug == Bug::kNone) {
    world.invariants.violated("manners", "an honest process broke the protocol");
  }
  if (!world.invariants.broken()) {
    if (!reached) {
      world.invariants.violated("progress", "somebody waits for ever");
    } else if (world.result() && !world.result()->has_value()) {
      world.invariants.violated("progress", "the run failed: " + world.result()->error().message);
    }
  }
  if (world.invariants.broken()) {
    outcome.broken = *world.invariants.broken();
    outcome.story = world.describe();
  }
  return outcome;
}

TEST(SimulationTest, Seeds) {
  if (std::getenv("ATOLL_SIM_SEED") != nullptr) {
    const Outcome outcome = run_seed(setting("ATOLL_SIM_SEED", 0));
    EXPECT_EQ(outcome.broken, "") << outcome.story;
    return;
  }
  const uint64_t minutes = setting("ATOLL_SIM_MINUTES", 0);
  const uint64_t first = setting("ATOLL_SIM_FIRST", 0);
  const uint64_t num_seeds = setting("ATOLL_SIM_SEEDS", minutes > 0 ? uint64_t{1} << 40 : 1000);
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return seconds(std::chrono::steady_clock::now() - begin); };
  size_t num_commits = 0;
  double simulated_s = 0;
  uint64_t seed = first;
  for (; seed < first + num_seeds; ++seed) {
    if (minutes > 0 && passed() > 60.0 * static_cast<double>(minutes)) break;
    SCOPED_TRACE(
        fmt::format("replay: ATOLL_SIM_SEED={} build/bin/collective_simulation_seeds_test "
                    "--gtest_filter=SimulationTest.Seeds",
                    seed));  // Exceptions carry it too.
    const Outcome outcome = run_seed(seed);
    num_commits += outcome.num_commits;
    simulated_s += outcome.simulated_s;
    EXPECT_EQ(outcome.broken, "") << outcome.story;
    if (HasFailure()) break;
  }
  const std::string result = fmt::format(
      R"({{"first_seed": {}, "seeds": {}, "violations": {}, "commits": {}, )"
      R"("simulated_hours": {:.1f}, "seconds": {:.0f}}})",
      first, seed - first, HasFailure() ? 1 : 0, num_commits, simulated_s / 3600, passed());
  std::cout << result << "\n";
  if (const char* path = std::getenv("ATOLL_SIM_RESULT")) std::ofstream(path) << result << "\n";
}

/// Each invariant can fail: a process that makes this mistake is found out, by that invariant.
struct Planted {
  Bug bug;
  std::string invariant;
};

class PlantedBugTest : public testing::TestWithParam<Planted> {};

TEST_P(PlantedBugTest, IsFound) {
  std::string found;
  for (uint64_t seed = 0; seed < 300 && !found.starts_with(GetParam().invariant + ":"); ++seed) {
    found = run_seed(seed, GetParam().bug).broken;
  }
  EXPECT_THAT(found, testing::StartsWith(GetParam().invariant + ":"));
}

INSTANTIATE_TEST_SUITE_P(
    Bugs, PlantedBugTest,
    testing::Values(Planted{Bug::kAppliesBeforeCommit, "durable"},
                    Planted{Bug::kForgetsCommits, "commits"},
                    Planted{Bug::kForgesDigest, "digests"}, Planted{Bug::kServesOldState, "donors"},
                    Planted{Bug::kTrainsTwice, "rows"}, Planted{Bug::kTermFallsBack, "terms"},
                    Planted{Bug::kSwapsResidualEarly, "residuals"},
                    Planted{Bug::kSitsStill, "progress"},
                    Planted{Bug::kCountsOutliers, "outliers"}),
    [](const auto& param) { return fmt::format("{}{}", param.param.invariant, param.index); });

}  // namespace
}  // namespace atl::collective
