#include "atoll/run/events.h"

#include <gtest/gtest.h>

#include <string>

#include "atoll/collective/events.h"

namespace atl::run {
namespace {

// Published, as those in coordinator/events_test.cpp: a change here is a change of the format.
std::string line(const Event& event) { return to_json(event, 0).substr(12); }

TEST(SessionEventsTest, AreLines) {
  EXPECT_EQ(line(collective::CoordinatorLost{.reason = "why", .patience_s = 600}),
            R"("kind":"coordinator_lost","reason":"why","patience_s":600.0,"sentence":"the )"
            R"(coordinator is not there (why); training goes on as far as it can, and waits 600 s )"
            R"x(for it at most (swarm.return_patience)"})x");
  EXPECT_EQ(line(collective::CoordinatorBack{}),
            R"("kind":"coordinator_back","sentence":"the coordinator is back"})");
  EXPECT_EQ(line(collective::WaitBegun{"why"}),
            R"("kind":"wait_begun","reason":"why","sentence":"why"})");
  EXPECT_EQ(line(collective::WaitOver{}),
            R"("kind":"wait_over","sentence":"the wait is over: rounds go on"})");
}

TEST(IslandEventsTest, OfJoining) {
  EXPECT_EQ(line(CoordinatorSought{.coordinator = "host:1/x", .patience_s = 60}),
            R"("kind":"coordinator_sought","coordinator":"host:1/x","patience_s":60.0,)"
            R"("sentence":"looking for the coordinator at host:1/x, for 01:00 at most )"
            R"x((swarm.join_patience)"})x");
  EXPECT_EQ(line(CoordinatorUnanswered{"host:1"}),
            R"("kind":"coordinator_unanswered","coordinator":"host:1","sentence":"nobody answers )"
            R"(at host:1: see that `atoll coordinate` runs there and that this is its address; )"
            R"(it is tried again"})");
  EXPECT_EQ(line(CameAs{"a"}), R"("kind":"came_as","island":"a","sentence":"came as 'a'"})");
  EXPECT_EQ(line(CodecChosen{.codec = "int8", .delay = 2, .choice = "int8, because"}),
            R"("kind":"codec_chosen","codec":"int8","delay":2,"choice":"int8, because",)"
            R"("sentence":"sync.codec = auto: int8, because"})");
  EXPECT_EQ(line(StateWanted{40}),
            R"("kind":"state_wanted","step":40,"sentence":"the run is at step 40: getting its )"
            R"(state from the other islands"})");
  EXPECT_EQ(line(StateTaken{}),
            R"("kind":"state_taken","sentence":"the state is here and is the committed one"})");
  EXPECT_EQ(line(RoundsReplayed{.step = 60, .checkpoint = "step-00000040", .rounds = 2}),
            R"("kind":"rounds_replayed","step":60,"checkpoint":"step-00000040","rounds":2,)"
            R"("sentence":"step 60 is checkpoint 'step-00000040' and 2 rounds after it"})");
  EXPECT_EQ(line(CheckpointVoid{.step = 40, .void_step = 60}),
            R"("kind":"checkpoint_void","step":40,"void_step":60,"sentence":"the run is at step )"
            R"(40; the checkpoint of step 60 is not of it any more and renamed to )"
            R"(step-00000060.void"})");
  EXPECT_EQ(line(WeightsNotFinite{.model = "m", .what = "why"}),
            R"("kind":"weights_not_finite","model":"m","what":"why",)"
            R"("sentence":"warning: 'm': why"})");
}

TEST(IslandEventsTest, OfTraining) {
  EXPECT_EQ(line(StepLeftOut{.step = 7, .what = "loss is nan"}),
            R"("kind":"step_left_out","step":7,"what":"loss is nan","sentence":"warning: the loss )"
            R"(is nan at step 7: this island's part is left out, with weight 0"})");
  EXPECT_EQ(line(PartLeftOut{.round = 7, .reason = "why"}),
            R"("kind":"part_left_out","round":7,"reason":"why","sentence":"warning: this island's )"
            R"(part of round 7 was left out, with weight 0: why"})");
  EXPECT_EQ(line(RoundsNotKept{"why"}),
            R"("kind":"rounds_not_kept","reason":"why","sentence":"warning: why"})");
  EXPECT_EQ(line(RecordsNotKept{"metrics.jsonl"}),
            R"("kind":"records_not_kept","file":"metrics.jsonl",)"
            R"x("sentence":"warning: metrics.jsonl can no longer be written (disk full?)"})x");
  EXPECT_EQ(line(StopWanted{}),
            R"("kind":"stop_wanted",)"
            R"x("sentence":"stopping after the next sync (Ctrl-C again: end now)"})x");
  EXPECT_EQ(line(JoinsAgain{"why"}),
            R"("kind":"joins_again","reason":"why","sentence":"why; joining again"})");
  EXPECT_EQ(line(IslandFailed{"why"}),
            R"("kind":"island_failed","reason":"why","sentence":"why"})");
}

TEST(LauncherEventsTest, AreLines) {
  EXPECT_EQ(line(IslandProcessLost{
                .island = "island-1", .cause = "island-1: why", .command = "atoll join"}),
            R"("kind":"island_process_lost","island":"island-1","cause":"island-1: why",)"
            R"("command":"atoll join","sentence":"island-1 is lost, the others go on:\n  )"
            R"(island-1: why\n  to bring it back: atoll join"})");
  EXPECT_EQ(line(CoordinatorRestarted{"coordinator: why"}),
            R"("kind":"coordinator_restarted","cause":"coordinator: why","sentence":"the )"
            R"(coordinator was lost and is started again:\n  coordinator: why"})");
  EXPECT_EQ(line(RunEndsEarly{{"island-1: why"}}),
            R"("kind":"run_ends_early","causes":["island-1: why"],"sentence":"the run ends )"
            R"(early, waiting for the others:\n  island-1: why"})");
  EXPECT_EQ(line(IslandEndedBefore{.island = "island-1", .step = 5, .last = 9}),
            R"("kind":"island_ended_before","island":"island-1","step":5,"last":9,)"
            R"("sentence":"island-1 had left at step 5; the others went on to step 9"})");
}

}  // namespace
}  // namespace atl::run
