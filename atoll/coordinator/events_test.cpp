#include "atoll/coordinator/events.h"

#include <gtest/gtest.h>

#include <string>

namespace atl::swarm {
namespace {

// What programs read: kinds, fields and their order are published in docs/formats.md, and sentences
// are what people look for in logs. A change here is a change of the format.
std::string line(const Event& event) { return to_json(event, 0).substr(12); }

TEST(CoordinatorEventsTest, OfTheRun) {
  EXPECT_EQ(line(CoordinatorStarted{.run = "r", .join = "host:1", .islands = 2, .steps = 9}),
            R"("kind":"coordinator_started","run":"r","join":"host:1","islands":2,"steps":9,)"
            R"("sentence":"run r waits for 2 islands that train it (atoll join host:1), or for )"
            R"x(servers of a model's layers (atoll serve MODEL --join)"})x");
  EXPECT_EQ(
      line(CoordinatorStarted{.run = "r", .join = "host:1/x", .islands = 2, .step = 3, .steps = 9}),
      R"("kind":"coordinator_started","run":"r","join":"host:1/x","islands":2,"step":3,)"
      R"("steps":9,"sentence":"run r is at step 3 of 9: atoll join host:1/x"})");
  EXPECT_EQ(
      line(RunContinued{.run = "r", .term = 7, .round = 4, .step = 50, .islands = {"a", "b"}}),
      R"("kind":"run_continued","run":"r","term":7,"round":4,"step":50,)"
      R"("islands":["a","b"],"sentence":"back in run 'r', term 7: round 4 (step 50) was )"
      R"(committed last; waits for a, b to return"})");
  EXPECT_EQ(line(IslandsGathering{.ready = 1, .wanted = 3}),
            R"("kind":"islands_gathering","ready":1,"wanted":3,)"
            R"("sentence":"1 of 3 islands are here"})");
  EXPECT_EQ(
      line(StateAwaited{.step = 60, .newest = "'a': step 40"}),
      R"("kind":"state_awaited","step":60,"newest":"'a': step 40","sentence":"the run was at )"
      R"(step 60, and what is here is not enough: 'a': step 40; it waits for islands that )"
      R"x(hold more (to give those up, start the coordinator with another --run)"})x");
  EXPECT_EQ(line(StepsVoid{.step = 40, .last = 60}),
            R"("kind":"steps_void","step":40,"last":60,"sentence":"nobody holds what was )"
            R"(committed after step 40: steps 41 to 60 are void"})");
  EXPECT_EQ(line(RunBegun{.step = 0, .islands = {"a", "b"}}),
            R"("kind":"run_begun","step":0,"islands":["a","b"],)"
            R"("sentence":"the run begins at step 0 with a, b"})");
  EXPECT_EQ(line(StopRequested{}),
            R"("kind":"stop_requested","sentence":"stopping after the next sync"})");
  EXPECT_EQ(line(StopRequested{"a"}),
            R"("kind":"stop_requested","island":"a",)"
            R"("sentence":"island 'a' asked to stop: stopping after the next sync"})");
  EXPECT_EQ(line(RunNotBegun{}),
            R"("kind":"run_not_begun","sentence":"the coordinator was stopped before islands )"
            R"(began to train"})");
  EXPECT_EQ(line(RunOver{90}), R"("kind":"run_over","step":90,)"
                               R"("sentence":"the run is over: step 90 is committed"})");
  EXPECT_EQ(line(RunStopped{.step = 80, .steps = 90}),
            R"("kind":"run_stopped","step":80,"steps":90,"sentence":"the run has stopped at step )"
            R"(80 of 90; to go on with it, start its coordinator and islands again with the same )"
            R"(run directories"})");
  EXPECT_EQ(line(RunFailed{"why"}),
            R"("kind":"run_failed","reason":"why","sentence":"the run ended: why"})");
  EXPECT_EQ(line(RunStandsStill{"why"}),
            R"("kind":"run_stands_still","reason":"why","sentence":"this run stands still: why; )"
            R"(its islands wait for a coordinator that is started again"})");
}

TEST(CoordinatorEventsTest, OfRounds) {
  EXPECT_EQ(
      line(RoundCommitted{.round = 3, .fragment = 1, .step = 80, .digest = "0123456789abcdef"}),
      R"("kind":"round_committed","round":3,"fragment":1,"step":80,)"
      R"("digest":"0123456789abcdef","abstainers":[],"is_last":false,)"
      R"("sentence":"round 3 committed: step 80, digest 0123456789ab"})");
  EXPECT_EQ(RoundCommitted({.digest = "d", .abstainers = {"a", "b"}, .is_last = true}).sentence(),
            "round 0 committed: step 0, digest d, without 'a', 'b' (abstained), stopping");
  EXPECT_EQ(line(RoundsWait{.live = 1, .least = 2}),
            R"("kind":"rounds_wait","live":1,"least":2,"sentence":"WARNING: rounds wait until )"
            R"x(more have come: 1 of at least 2 islands (swarm.min_replicas)"})x");
  EXPECT_EQ(line(RoundsGoOn{.live = 2, .least = 2}),
            R"("kind":"rounds_go_on","live":2,"least":2,)"
            R"("sentence":"rounds go on with 2 of at least 2 islands"})");
}

TEST(CoordinatorEventsTest, OfGuests) {
  EXPECT_EQ(line(StrangerRefused{"why"}), R"("kind":"stranger_refused","reason":"why",)"
                                          R"("sentence":"a stranger was turned away: why"})");
  EXPECT_EQ(line(IslandCame{.island = "a", .address = "host:1"}),
            R"("kind":"island_came","island":"a","address":"host:1",)"
            R"("sentence":"island 'a' came from host:1"})");
  EXPECT_EQ(line(IslandRefused{.island = "a", .reason = "why"}),
            R"("kind":"island_refused","island":"a","reason":"why",)"
            R"("sentence":"island 'a' was refused: why"})");
  EXPECT_EQ(line(IslandReady{"a"}),
            R"("kind":"island_ready","island":"a","sentence":"island 'a' is ready"})");
  EXPECT_EQ(line(GuestLeft{"a"}), R"("kind":"guest_left","island":"a",)"
                                  R"("sentence":"island 'a' left before it was a member"})");
  EXPECT_EQ(line(GuestLost{.island = "a", .reason = "why"}),
            R"("kind":"guest_lost","island":"a","reason":"why",)"
            R"("sentence":"island 'a' was lost before it was a member: why"})");
  EXPECT_EQ(line(GuestFailed{.island = "a", .reason = "why"}),
            R"("kind":"guest_failed","island":"a","reason":"why",)"
            R"("sentence":"island 'a' cannot go on: why"})");
  EXPECT_EQ(line(IslandJoins{.island = "a", .step = 40}),
            R"("kind":"island_joins","island":"a","step":40,)"
            R"("sentence":"island 'a' joins at step 40"})");
}

TEST(CoordinatorEventsTest, OfMembers) {
  EXPECT_EQ(line(IslandCaughtUp{.island = "a", .round = 5}),
            R"("kind":"island_caught_up","island":"a","round":5,)"
            R"("sentence":"island 'a' has caught up: it takes part from round 5"})");
  EXPECT_EQ(line(IslandLost{.island = "a", .reason = "why", .live = 2, .members = 3}),
            R"("kind":"island_lost","island":"a","reason":"why","live":2,"members":3,)"
            R"("sentence":"island 'a' was lost: why; 2 of 3 islands go on"})");
  EXPECT_EQ(line(AllIslandsLost{}),
            R"("kind":"all_islands_lost",)"
            R"("sentence":"no island is left; waiting for islands to come back"})");
  EXPECT_EQ(line(IslandBack{"a"}), R"("kind":"island_back","island":"a","is_anew":false,)"
                                   R"("sentence":"island 'a' is back"})");
  EXPECT_EQ(IslandBack({.island = "a", .is_anew = true}).sentence(),
            "island 'a' is back and joins anew");
  EXPECT_EQ(line(IslandLeft{"a"}),
            R"("kind":"island_left","island":"a","sentence":"island 'a' has left"})");
  EXPECT_EQ(line(IslandRemoved{.island = "a", .reason = "why"}),
            R"("kind":"island_removed","island":"a","reason":"why",)"
            R"("sentence":"island 'a' is no member any more: why"})");
  EXPECT_EQ(line(IslandInTrouble{.island = "a", .reason = "why"}),
            R"("kind":"island_in_trouble","island":"a","reason":"why",)"
            R"("sentence":"island 'a': why"})");
  EXPECT_EQ(line(ProtocolBroken{.island = "a", .what = "did so"}),
            R"("kind":"protocol_broken","island":"a","what":"did so",)"
            R"("sentence":"island 'a' broke the protocol: it did so"})");
  EXPECT_EQ(line(IslandLeftOut{.island = "a",
                               .round = 4,
                               .offence = "norm",
                               .figure = 8,
                               .usual = 0.5,
                               .reason = "why"}),
            R"("kind":"island_left_out","island":"a","round":4,"offence":"norm","figure":8.0,)"
            R"("usual":0.5,"reason":"why","sentence":"island 'a' is left out of round 4: why"})");
  EXPECT_EQ(
      line(IslandLeftOut{.island = "a", .round = 4, .offence = "unusable", .reason = "why"}),
      R"("kind":"island_left_out","island":"a","round":4,"offence":"unusable","reason":"why",)"
      R"("sentence":"island 'a' is left out of round 4: why"})");
}

TEST(CoordinatorEventsTest, OfLinks) {
  EXPECT_EQ(line(LinkLost{.islands = {"b", "a"}, .reason = "why"}),
            R"("kind":"link_lost","islands":["b","a"],"reason":"why",)"
            R"("sentence":"islands 'b' and 'a' cannot reach each other: why"})");
  EXPECT_EQ(line(LinkBack{.islands = {"a", "b"}, .way = "direct"}),
            R"("kind":"link_back","islands":["a","b"],"way":"direct","relay":"",)"
            R"("sentence":"islands 'a' and 'b' reach each other again"})");
  EXPECT_EQ(line(LinkBack{.islands = {"a", "b"}, .way = "relayed", .relay = "c"}),
            R"("kind":"link_back","islands":["a","b"],"way":"relayed","relay":"c",)"
            R"("sentence":"islands 'a' and 'b' reach each other again through 'c'"})");
  EXPECT_EQ(line(IslandUnreachable{.island = "a", .other = "b", .round = 8}),
            R"("kind":"island_unreachable","island":"a","other":"b","round":8,)"
            R"("sentence":"round 8 goes on without island 'a': it cannot reach 'b', nor could )"
            R"(they meet"})");
}

}  // namespace
}  // namespace atl::swarm
