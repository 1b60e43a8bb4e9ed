// The whole protocol (coordinator, members, exchange) over the simulated network, for hundreds of
// seeds: other latencies, bandwidths, sizes and faults each time. A failing seed prints its number;
// ATOLL_SIM_SEED=N runs it alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>

#include "atoll/collective/simulated_run.h"

namespace atl::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

TEST(SimulationTest, TwoIslandsTrainToTheEnd) {
  World world(1, {});
  world.start_coordinator();
  world.add_all();
  ASSERT_TRUE(world.run(seconds(60))) << world.log;
  for (const auto& island : world.islands) {
    EXPECT_TRUE(island->done) << island->failure;
    EXPECT_THAT(island->applied, testing::ElementsAre(3, 4, 5));
  }
  // Each sends half of the values to the other, and the mean of the other half: 100 of 4 bytes,
  // and the headers of two messages.
  EXPECT_GT(world.ledger.bytes_sent[4], 2 * 400);
  EXPECT_LT(world.ledger.bytes_sent[4], 2 * (400 + 2 * 150));
  EXPECT_EQ(world.ledger.bytes_sent, world.ledger.bytes_received);
  ASSERT_TRUE(world.service->result().has_value());
  EXPECT_TRUE(world.service->result()->has_value());
}

/// Every island that is alive failed, saying all of `words`.
void expect_all_failed(const World& world, const std::vector<std::string>& words) {
  for (const auto& island : world.islands) {
    if (island->dead) continue;
    EXPECT_FALSE(island->done) << island->name();
    for (const std::string& word : words) EXPECT_THAT(island->failure, HasSubstr(word));
  }
}

/// The virtual time until all have ended.
double seconds_until_end(World& world, Duration patience) {
  const Time begin = world.network.queue().now();
  EXPECT_TRUE(world.run(patience)) << world.log;
  return atl::seconds(world.network.queue().now() - begin);
}

Plan endless() {
  Plan plan;
  plan.num_islands = 3;
  plan.rounds.clear();
  for (int64_t round = 0; round < 10'000; ++round) plan.rounds.push_back(round);
  return plan;
}

/// Three islands in the middle of training.
struct Training : World {
  Training() : World(1, endless()) {
    start_coordinator();
    add_all();
    EXPECT_TRUE(
        network.queue().run_until([this] { return ledger.commits.size() > 5; }, seconds(60)));
  }
};

TEST(SimulationTest, KilledIslandEndsTheRunAtOnceForAll) {
  Training world;
  world.islands[1]->kill();
  EXPECT_LT(seconds_until_end(world, seconds(60)), 0.5);
  expect_all_failed(world, {"'island-1' was lost", "last committed round is", "to resume"});
  EXPECT_FALSE(world.service->result()->has_value());
}

/// The rounds go on as if nothing had been, but for the time that a connection takes to break.
TEST(SimulationTest, TheOthersGoOnWithoutAKilledIsland) {
  Plan plan = endless();
  plan.min_replicas = 1;
  World world(1, plan);
  world.start_coordinator();
  world.add_all();
  const auto run_for = [&](Duration time) { world.network.queue().run_for(time); };
  run_for(seconds(3));
  for (const size_t victim : {size_t{1}, size_t{0}}) {
    const size_t before = world.ledger.commits.size();
    run_for(seconds(1));
    const size_t in_a_second = world.ledger.commits.size() - before;
    world.islands[victim]->kill();
    run_for(seconds(1));
    EXPECT_GE(world.ledger.commits.size() - before, 2 * in_a_second - 3);
  }
  EXPECT_TRUE(world.islands[2]->failure.empty()) << world.islands[2]->failure;
  EXPECT_THAT(world.log, AllOf(HasSubstr("'island-1' was lost"), HasSubstr("2 of 3 islands go on"),
                               HasSubstr("1 of 3 islands go on")));
  world.islands[2]->kill();
  run_for(seconds(1));
  EXPECT_FALSE(world.service->result()->has_value());
}

TEST(SimulationTest, KilledCoordinatorEndsTheRunAtOnceForAll) {
  Training world;
  world.kill_coordinator();
  EXPECT_LT(seconds_until_end(world, seconds(60)), 0.5);
  expect_all_failed(world, {"the coordinator was lost", "to resume"});
}

TEST(SimulationTest, SilentIslandIsLostWithinTheTimeout) {
  Training world;
  world.network.cut("island-1", "coordinator");
  EXPECT_LT(seconds_until_end(world, seconds(120)), 35);
  for (const int i : {0, 2}) {
    EXPECT_THAT(world.islands[static_cast<size_t>(i)]->failure, HasSubstr("'island-1' was lost"));
  }
  EXPECT_THAT(world.islands[1]->failure, HasSubstr("the coordinator was lost"));
}

TEST(SimulationTest, IslandsThatCannotReachEachOtherAreNamed) {
  Training world;
  world.network.cut("island-1", "island-2");
  EXPECT_LT(seconds_until_end(world, seconds(120)), 35);
  expect_all_failed(world, {"island-1", "island-2", "connection"});
}

TEST(SimulationTest, AbsentCoordinatorIsTriedUntilThePatienceIsOver) {
  World world(1, {});
  Island& island = world.add("island-0");
  EXPECT_NEAR(seconds_until_end(world, seconds(120)), 60, 6);
  EXPECT_THAT(island.failure, AllOf(HasSubstr("no coordinator answered at 'coordinator:7'"),
                                    HasSubstr("within 60 s")));
}

TEST(SimulationTest, LateCoordinatorIsFound) {
  World world(1, {});
  world.add_all();
  world.network.queue().run_for(seconds(20));
  world.start_coordinator();
  EXPECT_LT(seconds_until_end(world, seconds(60)), 10);
  for (const auto& island : world.islands) EXPECT_TRUE(island->done) << island->failure;
}

TEST(SimulationTest, OtherSettingIsRefusedByName) {
  const std::array<std::array<std::string, 3>, 3> cases = {{
      {"sync.sync_every", "20", "30"},
      {"sync.method", "\"diloco\"", "\"sparse_loco\""},
      {"sync.codec", "\"bf16\"", "\"int8\""},
  }};
  for (const auto& [name, ours, others] : cases) {
    World world(1, {});
    world.start_coordinator();
    world.add("island-0", {{name, ours}});
    Island& other = world.add("island-1", {{name, others}});
    world.network.queue().run_for(seconds(5));
    EXPECT_THAT(other.failure, HasSubstr(name + ": the coordinator has " + ours +
                                         ", this island asked for " + others));
    EXPECT_FALSE(world.islands[0]->ended());
    world.add("island-2", {{name, ours}});  // Its place is free.
    ASSERT_TRUE(world.run(seconds(60)));
    EXPECT_TRUE(world.islands[0]->done);
  }
}

TEST(SimulationTest, OtherDataIsRefusedByName) {
  World world(1, {});
  world.start_coordinator();
  world.add("island-0");
  world.network.queue().run_for(seconds(1));
  Island& other = world.add("island-1");
  other.facts = {{"data", "d2"}};
  world.network.queue().run_for(seconds(5));
  EXPECT_THAT(other.failure, HasSubstr("data: island 'island-0' has d1, this island d2"));
  EXPECT_FALSE(world.islands[0]->ended());
}

TEST(SimulationTest, ThirdIslandIsRefused) {
  Training world;
  Island& late = world.add("late");
  world.network.queue().run_for(seconds(1));
  EXPECT_THAT(late.failure, HasSubstr("has its 3 islands (island-0, island-1, island-2"));
  EXPECT_FALSE(world.islands[0]->ended());
}

TEST(SimulationTest, StartsFromTheNewestCommonCheckpoint) {
  World world(1, {});
  world.start_coordinator();
  world.add_all();
  world.islands[0]->checkpoints = {{10, "a"}, {20, "b"}, {30, "c"}};
  world.islands[1]->checkpoints = {{10, "a"}, {20, "b"}, {30, "other"}, {40, "d"}};
  ASSERT_TRUE(world.run(seconds(60)));
  EXPECT_EQ(world.islands[0]->start->start_step, 20);
  EXPECT_EQ(world.islands[1]->start->start_step, 20);
}

TEST(SimulationTest, NoCommonCheckpointEndsTheRunNamingThem) {
  World world(1, {});
  world.start_coordinator();
  world.add_all();
  world.islands[1]->checkpoints = {{10, "a"}};
  ASSERT_TRUE(world.run(seconds(60)));
  expect_all_failed(world, {"checkpoints", "'island-0' step 0 (p0)", "'island-1' step 10 (a)"});
}

TEST(SimulationTest, StopRequestStopsAllAfterTheSameRound) {
  Training world;
  world.islands[2]->engine().request_stop();
  ASSERT_TRUE(world.run(seconds(60)));
  for (const auto& island : world.islands) {
    EXPECT_TRUE(island->done) << island->failure;
    EXPECT_EQ(island->applied, world.islands[0]->applied);
  }
  EXPECT_TRUE(world.service->result()->has_value());
}

TEST(SimulationTest, NotANumberNamesItsIsland) {
  Training world;
  world.islands[1]->poison = true;
  ASSERT_TRUE(world.run(seconds(60)));
  expect_all_failed(world, {"the values of island 'island-1'", "cannot be sent"});
}

TEST(SimulationTest, IslandsThatAbstainAreNamedAndTheRunGoesOn) {
  Plan plan;
  plan.num_islands = 3;
  plan.abstain_one_in = 2;
  World world(1, plan);
  world.start_coordinator();
  world.add_all();
  ASSERT_TRUE(world.run(seconds(60))) << world.log;
  for (const auto& island : world.islands) EXPECT_EQ(island->applied.size(), 3U);
  EXPECT_THAT(world.log, HasSubstr("(abstained)"));
  EXPECT_TRUE(world.service->result()->has_value());
}

/// While a slow line carries parts between two islands the third hears nothing for longer than the
/// silence that counts as a loss.
TEST(SimulationTest, SlowLineIsNoStallWhileBytesFlow) {
  for (const Topology topology : {Topology::kScatter, Topology::kGather}) {
    Plan plan;
    plan.num_islands = 3;
    plan.count = 300'000;
    plan.topology = topology;
    plan.rounds = {0};
    World world(1, plan);
    world.network.set_link("island-0", "island-2", {.bits_per_second = 40e3});
    world.start_coordinator();
    world.add_all();
    EXPECT_GT(seconds_until_end(world, seconds(2000)), 75);
    for (const auto& island : world.islands) EXPECT_TRUE(island->done) << island->failure;
  }
}

/// One island's outer steps take longer than the silence that counts as a loss; the others, which
/// have later rounds open with it, wait.
TEST(SimulationTest, LongOuterStepIsNoSilence) {
  for (const int in_flight : {1, 3}) {
    Plan plan;
    plan.num_islands = 3;
    plan.in_flight = in_flight;
    World world(1, plan);
    world.start_coordinator();
    world.add("island-0");
    world.add("island-2");
    plan.prepare_time = seconds(75);
    world.islands.push_back(
        std::make_unique<Island>(world.network, 1, "island-1", plan, world.ledger));
    EXPECT_GT(seconds_until_end(world, seconds(600)), 3 * 75);
    for (const auto& island : world.islands) EXPECT_TRUE(island->done) << island->failure;
  }
}

TEST(SimulationTest, IslandLostDuringAnOuterStepEndsTheRun) {
  Plan plan;
  plan.prepare_time = seconds(75);
  World world(1, plan);
  world.start_coordinator();
  world.add_all();
  world.network.queue().run_for(seconds(40));
  world.islands[0]->kill();
  EXPECT_LT(seconds_until_end(world, seconds(60)), 0.5);
  expect_all_failed(world, {"'island-0' was lost"});
}

TEST(SimulationTest, ExchangesByDifferentCodecsAreNamed) {
  Plan plan;
  World world(1, plan);
  world.start_coordinator();
  world.add("island-0");
  plan.codec = "bf16";
  world.islands.push_back(
      std::make_unique<Island>(world.network, 1, "island-1", plan, world.ledger));
  ASSERT_TRUE(world.run(seconds(60)));
  expect_all_failed(world, {"'island-0' and 'island-1' differ",
                            "an exchange by fp32 scatter against bf16 scatter"});
}

TEST(SimulationTest, DifferentDigestsEndTheRunBeforeTheCommit) {
  Training world;
  world.islands[1]->forge = true;
  ASSERT_TRUE(world.run(seconds(60)));
  expect_all_failed(world, {"the results differ", "island-1"});
}

/// What a faulty peer's frames do to the run: it ends for all, and all hear who it was.
struct Damage {
  std::string name;
  bool bulk;
  std::function<void(Bytes&)> change;
};

class DamageTest : public testing::TestWithParam<Damage> {};

TEST_P(DamageTest, EndsTheRunNamingThePeer) {
  Training world;
  bool done = false;
  world.network.set_tamper([&](const std::string& from, const std::string& to, Bytes& frame) {
    const bool bulk = to != "coordinator";
    if (done || from != "island-1" || bulk != GetParam().bulk) return;
    done = true;
    GetParam().change(frame);
  });
  EXPECT_LT(seconds_until_end(world, seconds(60)), 5);
  expect_all_failed(world, {"island-1"});
}

INSTANTIATE_TEST_SUITE_P(
    Frames, DamageTest,
    testing::Values(Damage{"Garbage", true, [](Bytes& f) { f.assign(100, std::byte{0x5A}); }},
                    Damage{"GarbageControl", false,
                           [](Bytes& f) { f.assign(100, std::byte{0x5A}); }},
                    Damage{"Empty", true, [](Bytes& f) { f.clear(); }},
                    Damage{"Short", true, [](Bytes& f) { f.resize(f.size() / 2); }},
                    Damage{"Long", true, [](Bytes& f) { f.resize(f.size() + 1); }},
                    Damage{"LaterVersion", true, [](Bytes& f) { f[4] = std::byte{9}; }},
                    Damage{"NotANumber", true,
                           [](Bytes& f) { std::fill(f.end() - 4, f.end(), std::byte{0xFF}); }}),
    [](const auto& param) { return param.param.name; });

TEST(SimulationTest, StrangersDoNotDisturb) {
  Training world;
  std::vector<net::ConnectionId> lost;
  auto stranger = world.network.make_transport("stranger", [&](net::Event event) {
    if (const auto* gone = std::get_if<net::Lost>(&event)) lost.push_back(gone->connection);
  });
  for (const std::string target : {"coordinator:7", "island-0:7", "island-1:7"}) {
    for (const net::Plane plane : {net::Plane::kControl, net::Plane::kBulk}) {
      const auto connection = stranger->connect(target, plane);
      EXPECT_EQ(stranger->send(connection, Bytes(50, std::byte{7})), net::Sent::kAccepted);
    }
  }
  const size_t commits = world.ledger.commits.size();
  world.network.queue().run_for(seconds(20));
  EXPECT_EQ(lost.size(), 6U);
  EXPECT_GT(world.ledger.commits.size(), commits + 10);
}

/// Sizes, speeds and a method's ways, made from a seed.
template <typename Draw>
Plan draw_plan(const Draw& draw) {
  Plan plan;
  plan.num_islands = 1 + static_cast<int>(draw(5));
  plan.count = draw(16) == 0 ? draw(150'000) : draw(3'000);
  plan.in_flight = 1 + static_cast<int>(draw(3));
  plan.codec = std::array{"fp32", "bf16", "e3m0", "int4"}[draw(4)];
  plan.topology = draw(2) == 0 ? Topology::kScatter : Topology::kGather;
  plan.has_residual = plan.topology == Topology::kScatter && draw(2) == 0;
  plan.abstain_one_in = draw(3) == 0 ? 1 + draw(3) : 0;
  plan.unit_time = milliseconds(draw(2) == 0 ? 0 : draw(20));
  plan.prepare_time = milliseconds(draw(2) == 0 ? 0 : draw(500));
  plan.step_time = milliseconds(draw(300));
  plan.rounds.clear();
  const int64_t first = static_cast<int64_t>(draw(100));
  for (int64_t i = 0; i < 6; ++i) plan.rounds.push_back(first + i);
  return plan;
}

template <typename Draw>
sim::LinkOptions draw_link(const Draw& draw) {
  return {.latency = milliseconds(draw(100)),
          .jitter = milliseconds(draw(50)),
          .bits_per_second = draw(2) == 0 ? 0.0 : 2e6 + static_cast<double>(draw(50)) * 1e6};
}

/// A run with at most one fault at some moment.
void run_seed(uint64_t seed) {
  uint64_t draws = 0;
  const auto draw = [&](uint64_t end) { return random_bits(seed, 77, draws++) % end; };
  const Plan plan = draw_plan(draw);
  World world(seed, plan, draw_link(draw));
  world.start_coordinator();
  world.add_all();
  const uint64_t fault = draw(8);
  const Duration when = milliseconds(draw(4'000));
  const auto pick = [&] {
    return fmt::format("island-{}", draw(static_cast<uint64_t>(plan.num_islands)));
  };
  const std::string a = pick();
  const std::string b = draw(2) == 0 ? "coordinator" : pick();
  world.network.queue().after(when, [&] {
    if (fault == 0) world.islands[a.back() - '0']->kill();
    if (fault == 1) world.kill_coordinator();
    if (a == b) return;
    if (fault == 2) world.network.cut(a, b);
    if (fault == 3) world.network.cut_one_way(a, b);
    if (fault == 4) world.network.break_connections(a, b);
    if (fault == 5) world.islands[a.back() - '0']->engine().request_stop();
  });
  const bool ended = world.run(seconds(200));
  const bool begun = world.log.find("the run begins") != std::string::npos;
  if (fault < 5 && !begun && !ended) return;  // They rightly wait for another island.
  std::string state;
  for (const auto& island : world.islands) {
    state += fmt::format("{}: done {}, dead {}, applied {}, '{}'\n", island->name(), island->done,
                         island->dead, island->applied.size(), island->failure);
  }
  ASSERT_TRUE(ended) << plan.count << " values, step " << atl::seconds(plan.step_time)
                     << " s; fault " << fault << " at " << atl::seconds(when) << " s between " << a
                     << " and " << b << ": somebody waits for ever\n"
                     << state << world.log;
  const bool harmless = fault > 5;
  if (harmless) {
    EXPECT_EQ(world.ledger.bytes_sent, world.ledger.bytes_received);
  }
  for (const auto& island : world.islands) {
    if (harmless) {
      EXPECT_TRUE(island->done) << island->name() << ": " << island->failure << "\n" << world.log;
      EXPECT_EQ(island->applied.size(), plan.rounds.size());
    }
    EXPECT_TRUE(
        std::ranges::equal(island->applied, std::span(plan.rounds).first(island->applied.size())) ||
        plan.in_flight > 1);
  }
}

/// A run in which islands are killed, any but one of them, at any moments: the rest trains to the
/// end.
void run_with_kills(uint64_t seed) {
  uint64_t draws = 0;
  const auto draw = [&](uint64_t end) { return random_bits(seed, 78, draws++) % end; };
  Plan plan = draw_plan(draw);
  plan.num_islands = 2 + static_cast<int>(draw(4));
  plan.min_replicas = 1;
  World world(seed, plan, draw_link(draw));
  world.start_coordinator();
  world.add_all();
  const auto begun = [&] { return world.log.find("the run begins") != std::string::npos; };
  ASSERT_TRUE(world.network.queue().run_until(begun, seconds(60))) << world.log;
  const auto num_killed = 1 + draw(static_cast<uint64_t>(plan.num_islands - 1));
  for (uint64_t i = 0; i < num_killed; ++i) {
    world.network.queue().after(milliseconds(draw(6'000)), [&world, i] {
      if (!world.islands[i]->ended()) world.islands[i]->kill();
    });
  }
  ASSERT_TRUE(world.run(seconds(200))) << world.log;
  for (const auto& island : world.islands) {
    if (island->dead) continue;
    EXPECT_TRUE(island->done) << island->name() << ": " << island->failure << "\n" << world.log;
    EXPECT_EQ(island->applied.size(), plan.rounds.size());
  }
}

TEST(SimulationTest, SeedsWithKills) {
  const char* one = std::getenv("ATOLL_SIM_SEED");
  const uint64_t first = one != nullptr ? std::strtoull(one, nullptr, 10) : 0;
  const uint64_t end = one != nullptr ? first + 1 : 400;
  for (uint64_t seed = first; seed < end; ++seed) {
    run_with_kills(seed);
    ASSERT_FALSE(HasFailure()) << "ATOLL_SIM_SEED=" << seed << " replays it";
  }
}

TEST(SimulationTest, Seeds) {
  if (const char* one = std::getenv("ATOLL_SIM_SEED")) {
    run_seed(std::strtoull(one, nullptr, 10));
    return;
  }
  const char* asked = std::getenv("ATOLL_SIM_SEEDS");
  const uint64_t num_seeds = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 400;
  for (uint64_t seed = 0; seed < num_seeds; ++seed) {
    run_seed(seed);
    ASSERT_FALSE(HasFailure()) << "ATOLL_SIM_SEED=" << seed << " replays it";
  }
}

}  // namespace
}  // namespace atl::collective
