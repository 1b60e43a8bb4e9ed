#include "atoll/laws/recorded_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/random.h"

namespace atl::laws {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// An island that computes for so many seconds in each of `steps` steps.
RecordedIsland island(const std::string& name, double step_s, int64_t steps) {
  RecordedIsland out{.name = name, .marks = {{}}};
  out.marks.push_back(
      {.step = steps, .spent = {.computing_s = step_s * static_cast<double>(steps)}});
  return out;
}

/// A round of all islands, in which each sends and receives `bytes`.
RecordedRound round_of(size_t num_islands, int64_t sent, int64_t used, double bytes,
                       double prepare_s = 0) {
  RecordedRound round{.sent_after = sent};
  for (size_t i = 0; i < num_islands; ++i) {
    round.parts.push_back({.island = i,
                           .used_after = used,
                           .sent_bytes = bytes,
                           .received_bytes = bytes,
                           .prepare_s = prepare_s});
  }
  return round;
}

TEST(RecordedRun, ARoundWaitsForTheSlowestCrossesTheLineAndIsCommitted) {
  const RecordedRun run{.islands = {island("a", 1, 10), island("b", 0.8, 10)},
                        .rounds = {round_of(2, 10, 10, 1e6, 0.5)}};
  const std::vector<SimulatedIsland> lines(2, {.latency_s = 0.1});
  // Snapshots at 10 and 8 s; open at the coordinator 10.1, at the islands 10.2; a second on the
  // line and 0.2 across both; the outer step; to the coordinator and back.
  const double end_s = 10.2 + 1 + 0.2 + 0.5 + 0.1 + 0.1;
  const RunTime time = simulate(run, lines, 8e-3);
  EXPECT_NEAR(time.islands[0].waiting_s, end_s - 10, 1e-12);
  EXPECT_NEAR(time.islands[1].waiting_s, end_s - 8, 1e-12);
  EXPECT_NEAR(time.islands[1].utilisation(), 8 / end_s, 1e-12);
  EXPECT_NEAR(time.utilisation(), 18 / (2 * end_s), 1e-12);
  EXPECT_NEAR(time.exchange_s, ((end_s - 10) + (end_s - 8)) / 2, 1e-12);
  EXPECT_EQ(time.first_exchange_s, time.exchange_s);
}

TEST(RecordedRun, BesideTrainingOnlyTheRestIsWaitedFor) {
  RecordedRun run{.islands = {island("a", 1, 20), island("b", 1, 20)},
                  .rounds = {round_of(2, 10, 12, 1e6)}};
  const std::vector<SimulatedIsland> lines(2);
  EXPECT_NEAR(simulate(run, lines, 8e-3).utilisation(), 1, 1e-12);         // One second of two.
  EXPECT_NEAR(simulate(run, lines, 2e-3).islands[0].waiting_s, 2, 1e-12);  // Four of two.
  // A pause is no computing, but the exchange goes on in it.
  run.islands[0].marks = {{},
                          {.step = 11, .spent = {.computing_s = 11}},
                          {.step = 12, .spent = {.computing_s = 12, .pausing_s = 5}},
                          {.step = 20, .spent = {.computing_s = 20, .pausing_s = 5}}};
  run.islands[1].marks = run.islands[0].marks;
  const RunTime paused = simulate(run, lines, 2e-3);
  EXPECT_NEAR(paused.islands[0].waiting_s, 0, 1e-12);
  EXPECT_NEAR(paused.islands[0].pausing_s, 5, 1e-12);
  EXPECT_NEAR(paused.utilisation(), 1, 1e-12);
}

TEST(RecordedRun, RoundsOnTheirWayShareALine) {
  const RecordedRun run{.islands = {island("a", 1, 20), island("b", 1, 20)},
                        .rounds = {round_of(2, 10, 11, 2e6), round_of(2, 11, 12, 2e6)}};
  // The first leaves from 10 to 12 s and is waited for at 11; training is at 12 then; the second
  // leaves from 12 to 14 and is needed at 13.
  const RunTime time = simulate(run, std::vector<SimulatedIsland>(2), 8e-3);
  EXPECT_NEAR(time.islands[0].waiting_s, 1 + 1, 1e-12);
}

TEST(RecordedRun, TheSlowerDirectionDecides) {
  const RecordedRun run{.islands = {island("a", 1, 10), island("b", 1, 10)},
                        .rounds = {round_of(2, 10, 10, 1e6)}};
  const auto waits = [&](const SimulatedIsland& a) {
    return simulate(run, std::vector<SimulatedIsland>{a, {}}, 8e-3).islands[1].waiting_s;
  };
  EXPECT_NEAR(waits({.up = 0.5}), 2, 1e-12);
  EXPECT_NEAR(waits({.down = 0.25}), 4, 1e-12);
  EXPECT_NEAR(waits({.down = kInfinity}), 1, 1e-12);
}

TEST(RecordedRun, APauseIsMadeGoodAtOnce) {
  const auto waits = [](double bytes) {
    const RecordedRun run{.islands = {island("a", 1, 10), island("b", 1, 10)},
                          .rounds = {round_of(2, 10, 10, bytes)}};
    const std::vector<SimulatedIsland> lines(2, {.down = kInfinity, .burst_s = 0.02});
    return simulate(run, lines, 8e-3).islands[0].waiting_s;
  };
  EXPECT_NEAR(waits(1e6), 0.98, 1e-12);
  EXPECT_NEAR(waits(1e4), 0, 1e-12);
}

TEST(RecordedRun, ThePieceThatGoesAtOnceIsPaidForBehind) {
  RecordedRun run{.islands = {island("a", 1, 10), island("b", 1, 10)},
                  .rounds = {round_of(2, 10, 10, 5e5)}};
  const std::vector<SimulatedIsland> lines(2, {.down = kInfinity, .piece_bytes = 5e5});
  EXPECT_NEAR(simulate(run, lines, 8e-3).islands[0].waiting_s, 0, 1e-12);
  run.rounds.push_back(run.rounds[0]);  // It waits for the half second of the first.
  EXPECT_NEAR(simulate(run, lines, 8e-3).islands[0].waiting_s, 0.5, 1e-12);
  run.rounds = {round_of(2, 10, 10, 2e6)};
  EXPECT_NEAR(simulate(run, lines, 8e-3).islands[0].waiting_s, 2 - 0.25, 1e-12);
}

TEST(RecordedRun, MeansFollowTheContributions) {
  RecordedRun run{.islands = {island("a", 1, 10), island("b", 1, 10), island("c", 1, 10)},
                  .rounds = {round_of(3, 10, 10, 1e6)}};
  run.rounds[0].gathers = false;
  const auto waits = [&](double latency_s) {
    const std::vector<SimulatedIsland> lines(3, {.latency_s = latency_s});
    return simulate(run, lines, 8e-3).islands[0].waiting_s;
  };
  EXPECT_NEAR(waits(0), 1, 1e-12);
  // Two to open, half a second of contributions, two across; then the means are there to be sent,
  // and two across again; two to commit.
  EXPECT_NEAR(waits(1), 2 + 0.5 + 2 + 2 + 2, 1e-12);
}

TEST(RecordedRun, AnIslandThatHadNoPartDoesNotWait) {
  RecordedRun run{.islands = {island("a", 1, 10), island("b", 1, 10), island("c", 1, 10)},
                  .rounds = {round_of(2, 10, 10, 1e6)}};
  const RunTime time = simulate(run, std::vector<SimulatedIsland>(3), 8e-3);
  EXPECT_EQ(time.islands[2].waiting_s, 0);
  EXPECT_NEAR(time.islands[1].waiting_s, 1, 1e-12);
}

TEST(RecordedRun, OnlyStepsThatAllTookCount) {
  RecordedRun run{.islands = {island("a", 1, 30), island("b", 1, 20)},
                  .rounds = {round_of(2, 10, 10, 1e6), round_of(2, 30, 30, 1e6)}};
  run.islands[1].marks.front().step = 5;
  run.islands[1].marks.back().spent = {.computing_s = 15, .waiting_s = 3, .pausing_s = 7};
  EXPECT_EQ(run.first_step(), 5);
  EXPECT_EQ(run.last_step(), 20);
  const RunTime was = measured(run);
  EXPECT_NEAR(was.islands[0].computing_s, 15, 1e-12);
  EXPECT_NEAR(was.islands[1].utilisation(), 15.0 / 18, 1e-12);
  EXPECT_NEAR(was.utilisation(), 30.0 / 33, 1e-12);
  // A third of b's pause lies before the one round that counts.
  EXPECT_NEAR(simulate(run, std::vector<SimulatedIsland>(2), 8e-3).islands[0].waiting_s,
              1 + 7.0 / 3, 1e-12);
}

/// Every round on its own.
RecordedRun written_out(const RecordedRun& run) {
  RecordedRun out{.islands = run.islands, .rounds = {}};
  const auto [after, every, times] = run.again;
  const int64_t until = after + every;
  const auto add = [&](int64_t first, int64_t last, int64_t later) {
    for (const RecordedRound& round : run.rounds) {
      if (round.sent_after <= first || round.sent_after > last) continue;
      out.rounds.push_back(round);
      out.rounds.back().sent_after += later;
      for (RecordedPart& part : out.rounds.back().parts) part.used_after += later;
    }
  };
  add(0, until, 0);
  for (int64_t k = 1; k <= times; ++k) add(after, until, k * every);
  add(until, run.last_step(), 0);
  return out;
}

struct RepeatedRun {
  RecordedRun run;
  std::vector<SimulatedIsland> lines;
};

/// Of a seed: a few islands, rounds of a few sizes and delays, lines too slow, just enough or fast.
RepeatedRun repeated_run(uint64_t seed) {
  uint64_t drawn = 0;
  const auto uniform = [&] { return random_uniform(seed, 0, drawn++); };
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(uniform() * static_cast<double>(most));
  };
  RepeatedRun out;
  const auto num_islands = static_cast<size_t>(2 + below(3));
  RecordedRun& run = out.run;
  const int64_t every = 1 + below(12);
  run.again = {.after = below(5), .every = every, .times = below(400)};
  const int64_t until = run.again.after + every;
  const int64_t repeated_until = until + run.again.times * every;
  const int64_t last = repeated_until + every + below(20);
  // Speeds that hardly differ: who runs ahead does so for long.
  const double spread = std::pow(10, -3 * uniform());
  for (size_t i = 0; i < num_islands; ++i) {
    run.islands.push_back(island("", 1 + spread * uniform(), last));
    out.lines.push_back({.speed = 0.5 + uniform(),
                         .up = 0.3 + uniform(),
                         .down = 0.3 + uniform(),
                         .latency_s = 0.2 * uniform()});
    if (below(3) == 0) out.lines.back().burst_s = 0.02;
  }
  const double bytes = 1e6 * static_cast<double>(every) * std::pow(10, uniform() - 0.5);
  std::vector<int64_t> sent;
  for (int64_t step = 1; step <= until; ++step) {
    if (step == until || below(3) == 0) sent.push_back(step);
  }
  for (int64_t step = repeated_until + 1; step <= last; step += 1 + below(3)) sent.push_back(step);
  for (const int64_t step : sent) {
    run.rounds.push_back(round_of(num_islands, step, std::min(last, step + below(every + 1)),
                                  bytes * uniform(), 0.1 * uniform()));
    run.rounds.back().gathers = below(2) == 0;
    for (RecordedPart& part : run.rounds.back().parts) part.sent_bytes *= 0.5 + uniform();
  }
  return out;
}

TEST(RecordedRun, RoundsThatRepeatAreAsIfWrittenOut) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const RepeatedRun repeated = repeated_run(seed);
    const RunTime all = simulate(written_out(repeated.run), repeated.lines, 8e-3);
    const RunTime time = simulate(repeated.run, repeated.lines, 8e-3);
    const double tolerance_s = 1e-9 * all.wall_clock_s();
    EXPECT_NEAR(time.wall_clock_s(), all.wall_clock_s(), tolerance_s) << seed;
    EXPECT_NEAR(time.exchange_s, all.exchange_s, tolerance_s) << seed;
    for (size_t i = 0; i < all.islands.size(); ++i) {
      EXPECT_NEAR(time.islands[i].waiting_s, all.islands[i].waiting_s, tolerance_s) << seed;
      EXPECT_NEAR(time.islands[i].computing_s, all.islands[i].computing_s, tolerance_s) << seed;
    }
  }
}

TEST(RecordedRun, AnIslandThatSlowlyRunsAheadIsCaughtInTheEnd) {
  // b is a thousandth faster; after 1,000 periods its lead is the whole step that it may have.
  RecordedRun run{.islands = {island("a", 1, 10'000), island("b", 0.999, 10'000)},
                  .rounds = {round_of(2, 1, 2, 1e3), round_of(2, 2, 3, 1e3)},
                  .again = {.after = 1, .every = 1, .times = 9'900}};
  const std::vector<SimulatedIsland> lines(2);
  const RunTime time = simulate(run, lines, 8e-3);
  const RunTime all = simulate(written_out(run), lines, 8e-3);
  EXPECT_GT(all.islands[1].waiting_s, 1);
  EXPECT_NEAR(time.islands[1].waiting_s, all.islands[1].waiting_s, 1e-6);
}

TEST(RecordedRun, TheBandwidthForATargetGivesIt) {
  const RecordedRun run{.islands = {island("a", 1, 40), island("b", 0.8, 40)},
                        .rounds = {round_of(2, 10, 10, 1e6), round_of(2, 20, 20, 1e6),
                                   round_of(2, 30, 30, 1e6), round_of(2, 40, 40, 1e6)}};
  const std::vector<SimulatedIsland> lines = {{.up = 0.5}, {.latency_s = 0.01}};
  double before = 0;
  for (const double target : {0.5, 0.8, 0.89}) {
    const auto gbps = gbps_for(run, lines, target);
    ASSERT_TRUE(gbps);
    EXPECT_GE(simulate(run, lines, *gbps).utilisation(), target);
    EXPECT_LT(simulate(run, lines, *gbps * 0.998).utilisation(), target);
    EXPECT_GT(*gbps, before);
    before = *gbps;
  }
  EXPECT_FALSE(gbps_for(run, lines, 0.95));  // b waits for a a fifth of its time.
}

}  // namespace
}  // namespace atl::laws
