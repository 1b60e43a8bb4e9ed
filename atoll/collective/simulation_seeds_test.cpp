// The whole protocol (coordinator, members, exchange) over the simulated network, for hundreds of
// seeds: other sizes, speeds and faults each time. After every event the invariants are looked at
// (invariants.h). A failing seed prints the line that replays it. ATOLL_SIM_SEEDS: how many;
// ATOLL_SIM_MINUTES: for how long instead; ATOLL_SIM_FIRST: the first one; ATOLL_SIM_RESULT: a
// file for what came of them, as JSON.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "atoll/collective/faults.h"

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
  World world(seed, plan, draw_link(draw));
  const bool skewed = draw(2) == 0;
  const auto skew = [&] {
    return skewed ? Skew{draw.milliseconds(0, 100'000), 0.99 + 0.0001 * static_cast<double>(draw(200))}
                  : Skew{};
  };
  world.coordinator_skew = skew();
  world.start_coordinator();
  for (int i = 0; i < plan.num_islands; ++i) world.add(fmt::format("island-{}", i), {}, skew());
  Faults faults(world, draw);
  faults.plan(draw(8), std::chrono::seconds(5 + draw(40)));
  const auto over = [&] { return world.now() >= faults.over() || world.result(); };
  world.run_until(over, std::chrono::hours(1));
  const auto ended = [&] { return world.result() || world.all_ended(); };
  const bool reached = world.run_until(ended, kPatience);
  Outcome outcome{.num_commits = world.ledger.num_commits(),
                  .simulated_s = seconds(world.now() - Time{})};
  const bool was_rude = world.log.find("broke the protocol") != std::string::npos;
  if (was_rude && !faults.damages() && bug == Bug::kNone) {
    world.ledger.violated("manners", "an honest process broke the protocol");
  }
  if (!world.ledger.broken()) {
    if (!reached) {
      world.ledger.violated("progress", "somebody waits for ever");
    } else if (!world.result()) {
      world.ledger.violated("progress", "all ended, and the run did not");
    } else if (!world.result()->has_value()) {
      world.ledger.violated("progress", "the run failed: " + world.result()->error().message);
    }
  }
  if (world.ledger.broken()) {
    outcome.broken = *world.ledger.broken();
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
  const uint64_t num_seeds = setting("ATOLL_SIM_SEEDS", minutes > 0 ? uint64_t{1} << 40 : 300);
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return seconds(std::chrono::steady_clock::now() - begin); };
  size_t num_commits = 0;
  double simulated_s = 0;
  uint64_t seed = first;
  for (; seed < first + num_seeds; ++seed) {
    if (minutes > 0 && passed() > 60.0 * static_cast<double>(minutes)) break;
    const Outcome outcome = run_seed(seed);
    num_commits += outcome.num_commits;
    simulated_s += outcome.simulated_s;
    EXPECT_EQ(outcome.broken, "") << outcome.story << "replay: ATOLL_SIM_SEED=" << seed
                                  << " build/bin/collective_simulation_seeds_test "
                                     "--gtest_filter=SimulationTest.Seeds";
    if (HasFailure()) break;
  }
  const std::string result = fmt::format(
      R"({{"first_seed": {}, "seeds": {}, "violations": {}, "commits": {}, "simulated_hours": {:.1f}, "seconds": {:.0f}}})",
      first, seed - first, HasFailure() ? 1 : 0, num_commits, simulated_s / 3600, passed());
  std::cout << result << "\n";
  if (const char* path = std::getenv("ATOLL_SIM_RESULT")) std::ofstream(path) << result << "\n";
}

}  // namespace
}  // namespace atl::collective
