// Named situations of a whole run (coordinator, members, exchange) over the simulated network.
// simulation_seeds_test.cpp has those that a seed makes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "atoll/testing/simulated_training.h"

namespace atl::collective {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(SimulationTest, TwoIslandsTrainToTheEnd) {
  World world(1, {});
  expect_all_reach_the_end(world);
}

/// Without faults island i of R trains on place i of every global batch.
TEST(SimulationTest, RowsAreThoseOfTheGlobalBatches) {
  Plan plan = endless();
  plan.num_rounds = 40;
  plan.in_flight = 2;
  World world(1, plan);
  expect_all_reach_the_end(world);
  for (int32_t number = 0; number < 3; ++number) {
    const auto& units = world.invariants.trained_by(0, number);
    ASSERT_EQ(units.size(), 40U);
    for (size_t step = 0; step < units.size(); ++step) {
      EXPECT_EQ(units[step], static_cast<int64_t>(step) * 3 + number);
    }
  }
}

/// Once the lines are known: each line to and from it carries less, and all wait for those.
TEST(SimulationTest, AnIslandOnASlowLineOwnsLess) {
  Plan plan = endless();
  plan.num_islands = 4;
  plan.count = size_t{1} << 17;
  World world(1, plan, {.bits_per_second = 100e6});
  for (const char* other : {"island-0", "island-1", "island-2"}) {
    world.network.set_link("island-3", other, {.bits_per_second = 20e6});
  }
  world.start_coordinator();
  world.add_all();
  const auto round_time = [&] {
    const size_t before = world.invariants.num_commits();
    EXPECT_TRUE(
        world.run_until([&] { return world.invariants.num_commits() > before; }, seconds(60)));
    const Time begin = world.now();
    EXPECT_TRUE(
        world.run_until([&] { return world.invariants.num_commits() > before + 1; }, seconds(60)));
    return atl::seconds(world.now() - begin);
  };
  EXPECT_TRUE(world.run_until([&] { return world.invariants.num_commits() == 1; }, seconds(60)));
  const double equal = atl::seconds(world.now() - Time{});
  for (int i = 0; i < 5; ++i) round_time();
  // A quarter and a quarter of the fragment in each direction then; a third and nothing now.
  const double values_s = 4.0 * 8 * static_cast<double>(plan.count) / 20e6;
  EXPECT_NEAR(round_time(), values_s / 3 + atl::seconds(plan.step_time), 0.3 * values_s / 3);
  EXPECT_GT(equal, values_s / 2);
  EXPECT_EQ(world.invariants.broken().value_or(""), "") << world.log;
}

/// The rounds go on as if nothing had been, but for the time that a connection takes to break.
TEST(SimulationTest, TheOthersGoOnWithoutAKilledIsland) {
  Training world;
  for (const size_t victim : {size_t{1}, size_t{0}}) {
    const size_t in_a_second = world.commits_in(seconds(1));
    world.kill(*world.machines[victim]);
    EXPECT_GE(world.commits_in(seconds(1)) + 3, in_a_second);
  }
  EXPECT_EQ(world.life(2).failure, "");
  EXPECT_THAT(world.log, AllOf(HasSubstr("'island-1' was lost"), HasSubstr("2 of 3 islands go on"),
                               HasSubstr("1 of 3 islands go on")));
}

TEST(SimulationTest, AKilledIslandThatIsStartedAgainTakesPart) {
  Training world;
  world.kill(*world.machines[1]);
  world.run_for(seconds(2));
  world.start(*world.machines[1]);
  const size_t in_a_second = world.commits_in(seconds(1));
  EXPECT_GT(in_a_second, 10U) << "nobody waits for who joins";
  EXPECT_TRUE(world.takes_part(1)) << world.log;
  EXPECT_TRUE(world.life(1).start->joins);
}

/// Fragments are never level before the run's last step.
TEST(SimulationTest, AnIslandThatIsAskedToLeaveDoesSoOnceWhatItLearnedIsCounted) {
  Plan plan = endless();
  plan.in_flight = 3;
  Training world(plan);
  const size_t before = world.life(1).contributed.size();
  world.life(1).leave();
  ASSERT_TRUE(world.run_until([&] { return world.life(1).ended(); }, seconds(5)));
  EXPECT_TRUE(world.life(1).done) << world.life(1).failure;
  EXPECT_GE(world.life(1).contributed.size(), before + 3);
  EXPECT_LE(world.life(1).contributed.size(), before + 9);
  EXPECT_GT(world.commits_in(seconds(5)), 10U);
}

TEST(SimulationTest, AllIslandsButOneDieAndComeBack) {
  Training world;
  world.kill(*world.machines[0]);
  world.kill(*world.machines[2]);
  world.run_for(seconds(3));
  world.start(*world.machines[0]);
  world.start(*world.machines[2]);
  world.run_for(seconds(2));
  for (const size_t i : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
}

TEST(SimulationTest, AllIslandsDieAndTheRunGoesOnFromTheirCheckpoints) {
  Training world;
  for (const auto& machine : world.machines) world.kill(*machine);
  world.run_for(seconds(3));
  for (const auto& machine : world.machines) world.start(*machine);
  world.run_for(seconds(3));
  for (const size_t i : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
  EXPECT_GT(world.life(0).start->start_step, 0);
}

TEST(SimulationTest, ACoordinatorThatIsKilledGoesOnWhereItWas) {
  Training world;
  for (int i = 0; i < 3; ++i) {
    world.kill_coordinator();
    world.run_for(seconds(2));
    world.start_coordinator();
    world.run_for(seconds(3));
    for (const size_t k : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(k)) << world.log;
  }
  EXPECT_EQ(world.invariants.epoch(), 0) << "the run did not begin anew";
}

TEST(SimulationTest, AStoppedIslandIsNotWaitedForAndComesBackAsItself) {
  Training world;
  world.life(1).process().stop();
  world.run_for(seconds(4));
  EXPECT_GT(world.commits_in(seconds(6)), 60U);
  const int32_t number = world.life(1).start->number;
  world.life(1).process().go_on();
  world.run_for(seconds(1));
  EXPECT_TRUE(world.takes_part(1)) << world.log;
  EXPECT_EQ(world.life(1).start->number, number);
}

TEST(SimulationTest, ABrokenControlConnectionCostsNoMembership) {
  Training world;
  world.network.break_connections("island-1", "coordinator");
  world.run_for(seconds(2));
  EXPECT_TRUE(world.takes_part(1)) << world.log;
  EXPECT_THAT(world.log, HasSubstr("'island-1' is back"));
}

/// Who is left out cannot get what it misses either: in the end it joins again, and the other goes
/// on.
TEST(SimulationTest, OfTwoIslandsAloneThatCannotReachEachOtherOneGoesOn) {
  Plan plan = endless();
  plan.num_islands = 2;
  plan.silence_timeout = seconds(5);
  Training world(plan);
  for (const auto& machine : world.machines) machine->keeps_restarting = true;
  world.network.cut("island-0", "island-1");
  world.run_for(seconds(40));
  EXPECT_GT(world.commits_in(seconds(2)), 20U) << world.describe();
  EXPECT_THAT(world.log, AllOf(HasSubstr("'island-1' and 'island-0' cannot reach each other"),
                               HasSubstr("nor could they meet")));
  world.network.heal("island-0", "island-1");
  world.run_for(seconds(8));
  for (const size_t i : {0U, 1U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
}

TEST(SimulationTest, BelowMinReplicasTheRoundsWait) {
  Plan plan = endless();
  plan.min_replicas = 3;
  Training world(plan);
  world.kill(*world.machines[1]);
  EXPECT_LE(world.commits_in(seconds(5)), 1U);
  EXPECT_THAT(world.log, HasSubstr("of at least 3 islands (swarm.min_replicas)"));
  world.start(*world.machines[1]);
  world.run_for(seconds(2));
  for (const size_t i : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
}

TEST(SimulationTest, WithoutItsJournalTheRunBeginsAnewFromCheckpoints) {
  Training world;
  for (const auto& machine : world.machines) machine->keeps_restarting = true;
  world.kill_coordinator();
  world.lose_journal();
  world.run_for(seconds(1));
  world.start_coordinator();
  world.run_for(seconds(8));
  for (const size_t i : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
  EXPECT_EQ(world.invariants.epoch(), 1);
}

TEST(SimulationTest, AbsentCoordinatorIsTriedUntilThePatienceIsOver) {
  World world(1, {});
  Machine& island = world.add("island-0");
  island.keeps_restarting = false;
  ASSERT_TRUE(world.run(seconds(120)));
  EXPECT_NEAR(atl::seconds(world.now() - Time{}), 60, 6);
  EXPECT_THAT(island.life->failure, AllOf(HasSubstr("no coordinator answered at 'coordinator:7'"),
                                          HasSubstr("within 60 s")));
}

TEST(SimulationTest, LateCoordinatorIsFound) {
  World world(1, {});
  world.add_all();
  world.run_for(seconds(20));
  world.start_coordinator();
  ASSERT_TRUE(world.run(seconds(10)));
  expect_all_done(world);
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
    Machine& other = world.add("island-1", {{name, others}});
    other.keeps_restarting = false;
    world.run_for(seconds(5));
    EXPECT_THAT(other.life->failure, HasSubstr(name + ": the coordinator has " + ours +
                                               ", this island asked for " + others));
    EXPECT_FALSE(world.machines[0]->ended());
    world.add("island-2", {{name, ours}});  // Its place is free.
    ASSERT_TRUE(world.run(seconds(60)));
    EXPECT_TRUE(world.machines[0]->done());
  }
}

TEST(SimulationTest, OtherDataIsRefusedByName) {
  World world(1, {});
  world.start_coordinator();
  world.add("island-0");
  world.run_for(seconds(1));
  Machine& other = world.make("island-1");
  other.facts = {{"data", "d2"}};
  other.keeps_restarting = false;
  world.start(other);
  world.run_for(seconds(5));
  EXPECT_THAT(other.life->failure, HasSubstr("data: the run has d1, this island d2"));
  EXPECT_FALSE(world.machines[0]->ended());
}

TEST(SimulationTest, NoCommonCheckpointEndsTheRunNamingThem) {
  World world(1, {});
  world.start_coordinator();
  world.add("island-0").keeps_restarting = false;
  Machine& other = world.make("island-1");
  other.keeps_restarting = false;
  other.disk[0].theta[0][0] = 7;
  world.start(other);
  ASSERT_TRUE(world.run(seconds(60)));
  for (const auto& machine : world.machines) {
    EXPECT_THAT(machine->life->failure,
                AllOf(HasSubstr("checkpoints"), HasSubstr("'island-0' step 0"),
                      HasSubstr("'island-1' step 0")));
  }
}

TEST(SimulationTest, StopRequestStopsAllAfterTheSameRound) {
  Training world;
  world.life(2).engine().request_stop();
  ASSERT_TRUE(world.run(seconds(60)));
  for (const auto& machine : world.machines) {
    EXPECT_TRUE(machine->done()) << machine->life->failure;
    EXPECT_EQ(machine->life->applied, world.life(0).applied);
  }
  EXPECT_TRUE(world.result()->has_value());
}

TEST(SimulationTest, WhoHasNoNumbersIsOutAndTheOthersGoOn) {
  Training world;
  world.life(1).poison = true;
  world.run_for(seconds(2));
  EXPECT_THAT(world.life(1).failure,
              AllOf(HasSubstr("the values of island 'island-1'"), HasSubstr("cannot be sent")));
  EXPECT_TRUE(world.takes_part(0));
}

TEST(SimulationTest, DifferentDigestsEndTheRunBeforeTheCommit) {
  Training world;
  world.life(1).forge = true;
  ASSERT_TRUE(world.run(seconds(60)));
  for (const auto& machine : world.machines) {
    EXPECT_THAT(machine->life->failure,
                AllOf(HasSubstr("the results differ"), HasSubstr("island-1")));
  }
}

TEST(SimulationTest, IslandsThatAbstainAreNamedAndTheRunGoesOn) {
  Plan plan;
  plan.num_islands = 3;
  plan.abstain_one_in = 2;
  World world(1, plan);
  expect_all_reach_the_end(world);
  EXPECT_THAT(world.log, HasSubstr("(abstained)"));
}

/// While a slow line carries parts between two islands the third hears nothing for longer than the
/// silence that counts as a loss.
TEST(SimulationTest, SlowLineIsNoStallWhileBytesFlow) {
  for (const Topology topology : {Topology::kScatter, Topology::kGather}) {
    Plan plan;
    plan.num_islands = 3;
    plan.count = 300'000;
    plan.topology = topology;
    plan.num_rounds = 1;
    World world(1, plan);
    world.network.set_link("island-0", "island-2", {.bits_per_second = 40e3});
    world.start_coordinator();
    world.add_all();
    ASSERT_TRUE(world.run(seconds(2000))) << world.log;
    EXPECT_GT(atl::seconds(world.now() - Time{}), 75);
    expect_all_done(world);
    EXPECT_EQ(world.invariants.commits().at({0, 0}).members.size(), 3U);
  }
}

/// One island's outer steps take longer than the silence that counts as a loss; the others, which
/// have later rounds open with it, wait.
TEST(SimulationTest, LongOuterStepIsNoSilence) {
  for (const int in_flight : {1, 3}) {
    Plan plan;
    plan.num_islands = 3;
    plan.in_flight = in_flight;
    plan.num_rounds = 3;
    World world(1, plan);
    world.start_coordinator();
    world.add("island-0");
    world.add("island-2");
    Machine& slow = world.make("island-1");
    slow.plan = plan;
    slow.plan->prepare_time = seconds(75);
    world.start(slow);
    ASSERT_TRUE(world.run(seconds(600))) << world.log;
    EXPECT_GT(atl::seconds(world.now() - Time{}), 3 * 75);
    expect_all_done(world);
  }
}

TEST(SimulationTest, ExchangesByDifferentWaysAreNamed) {
  World world(1, {});
  world.start_coordinator();
  world.add("island-0");
  Machine& other = world.make("island-1");
  other.plan = world.plan;
  other.plan->topology = Topology::kGather;
  world.start(other);
  for (const auto& machine : world.machines) machine->keeps_restarting = false;
  ASSERT_TRUE(world.run(seconds(60)));
  for (const auto& machine : world.machines) {
    EXPECT_THAT(machine->life->failure, AllOf(HasSubstr("'island-0' and 'island-1' differ"),
                                              HasSubstr("fp32 scatter against fp32 gather")));
  }
}

/// What a faulty peer's frames do to the run: it is put out, all hear who it was, the rest goes on.
struct Damage {
  std::string name;
  bool bulk;
  std::function<void(Bytes&)> change;
};

class DamageTest : public testing::TestWithParam<Damage> {};

TEST_P(DamageTest, PutsOutThePeerAndTheOthersGoOn) {
  Training world;
  bool done = false;
  world.network.set_tamper([&](const std::string& from, const std::string& to, Bytes& frame) {
    const bool bulk = to != "coordinator";
    if (done || from != "island-1" || bulk != GetParam().bulk) return;
    done = true;
    GetParam().change(frame);
  });
  world.run_for(seconds(3));
  EXPECT_THAT(world.life(1).failure, HasSubstr("island 'island-1'"));
  EXPECT_EQ(world.life(1).ending, swarm::Ending::kMembership);
  EXPECT_THAT(world.log, HasSubstr("'island-1' broke the protocol"));
  for (const size_t i : {0U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
}

INSTANTIATE_TEST_SUITE_P(
    Frames, DamageTest,
    testing::Values(Damage{"Garbage", true, [](Bytes& f) { f.assign(100, std::byte{0x5A}); }},
                    Damage{"GarbageControl", false,
                           [](Bytes& f) { f.assign(100, std::byte{0x5A}); }},
                    Damage{"Empty", true, [](Bytes& f) { f.clear(); }},
                    Damage{"Short", true, [](Bytes& f) { f.resize(f.size() / 2); }},
                    Damage{"Long", true, [](Bytes& f) { f.resize(f.size() + 1); }},
                    Damage{"LaterVersion", true,
                           [](Bytes& f) { f[4] = std::byte{swarm::kProtocolVersion + 1}; }}),
    [](const auto& param) { return param.param.name; });

/// It is left out of one round: it goes on from what the others made, and counts in the next.
TEST(SimulationTest, WhoseContributionIsNoNumberIsLeftOutAndStays) {
  for (const Topology topology : {Topology::kScatter, Topology::kGather}) {
    Training world(endless(topology));
    bool done = false;
    world.network.set_tamper([&](const std::string& from, const std::string&, Bytes& frame) {
      if (done || from != "island-1" || !is_contribution(frame)) return;
      done = true;
      std::fill(frame.end() - 4, frame.end(), std::byte{0xFF});
    });
    world.run_for(seconds(1));
    EXPECT_TRUE(done);
    EXPECT_THAT(world.log, AllOf(HasSubstr("island 'island-1' is left out of round"),
                                 HasSubstr("cannot use its values: island 'island-1' sent values "
                                           "that cannot be used"),
                                 Not(HasSubstr("broke the protocol"))));
    EXPECT_EQ(world.life(1).num_left_out, 1);
    for (const size_t i : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
  }
}

TEST(SimulationTest, AnOutlierIsLeftOutAndStays) {
  for (const Topology topology : {Topology::kScatter, Topology::kGather}) {
    Training world(endless(topology));
    world.life(1).swell = true;
    world.run_for(seconds(1));
    EXPECT_THAT(world.log, HasSubstr("island 'island-1' is left out of round"));
    EXPECT_THAT(world.log, HasSubstr("times the usual"));
    EXPECT_EQ(world.life(1).num_left_out, 1);
    for (const size_t i : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
  }
}

/// Three islands, each judged by its own norms.
TEST(SimulationTest, ACoordinatorThatComesBackKnowsWhatIsUsual) {
  Training world;
  world.kill_coordinator();
  world.run_for(seconds(1));
  world.life(1).swell = true;
  world.start_coordinator();
  world.run_for(seconds(2));
  EXPECT_THAT(world.log, HasSubstr("island 'island-1' is left out of round"));
  EXPECT_EQ(world.life(1).num_left_out, 1);
  for (const size_t i : {0U, 1U, 2U}) EXPECT_TRUE(world.takes_part(i)) << world.log;
}

class PoisonTest : public testing::TestWithParam<Poison> {};

/// One of five from its first round on; the coordinator dies in between. It stays a member.
TEST_P(PoisonTest, CountsInNoRound) {
  Plan plan;
  plan.num_islands = 5;
  plan.num_rounds = 40;
  plan.count = 600;
  World world(1, plan);
  world.invariants.judge_outliers(true);
  world.start_coordinator();
  for (int i = 0; i < 5; ++i) {
    Machine& machine = world.make(fmt::format("island-{}", i));
    if (i == 2) {
      machine.plan = plan;
      machine.plan->poison = GetParam();
    }
    world.start(machine);
  }
  ASSERT_TRUE(world.run_until([&] { return world.invariants.num_commits() == 15; }, seconds(60)));
  world.kill_coordinator();
  world.run_for(seconds(1));
  world.start_coordinator();
  ASSERT_TRUE(world.run(seconds(60))) << world.log;
  expect_all_done(world);
  for (const auto& [round, commit] : world.invariants.commits()) {
    for (size_t rank = 0; rank < commit.members.size(); ++rank) {
      EXPECT_EQ(commit.weights[rank] == 0, commit.members[rank] == 2) << "round " << round.second;
    }
  }
  EXPECT_EQ(world.machines[2]->life->num_left_out, 40);
  for (const size_t other : {0U, 1U, 3U, 4U}) {
    EXPECT_EQ(world.machines[other]->life->num_left_out, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PoisonTest,
                         testing::Values(Poison::kSwollen, Poison::kGarbage, Poison::kFlipped,
                                         Poison::kNoise));

TEST(SimulationTest, StrangersDoNotDisturb) {
  Training world;
  std::vector<net::ConnectionId> lost;
  auto stranger = world.network.make_transport("stranger", [&](net::Event event) {
    if (const auto* gone = std::get_if<net::Lost>(&event)) lost.push_back(gone->connection);
  });
  for (const std::string target : {"coordinator:7", "island-0:40001", "island-1:40002"}) {
    for (const net::Plane plane : {net::Plane::kControl, net::Plane::kBulk}) {
      const auto connection = stranger->connect(target, plane);
      EXPECT_EQ(stranger->send(connection, Bytes(50, std::byte{7})), net::Sent::kAccepted);
    }
  }
  EXPECT_GT(world.commits_in(seconds(20)), 100U);
  EXPECT_EQ(lost.size(), 6U);
}

}  // namespace
}  // namespace atl::collective
