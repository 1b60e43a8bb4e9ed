#include "atoll/plan/plan_traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "atoll/base/random.h"
#include "atoll/method/fragments.h"
#include "atoll/method/method.h"
#include "atoll/weights/presets.h"

namespace atl::plan {
namespace {

using testing::Each;
using testing::ElementsAre;

method::SyncOptions options(const char* method, const char* codec, int64_t every = 30) {
  method::SyncOptions sync;
  sync.method = method;
  sync.codec = codec;
  sync.sync_every = every;
  return sync;
}

method::SyncOptions streaming(int64_t every, int64_t fragments, int64_t delay) {
  method::SyncOptions sync = options("streaming_diloco", "e3m0", every);
  sync.num_fragments = fragments;
  sync.fragment_sync_delay = delay;
  return sync;
}

LoadedIsland island(double step_s, double mbit, double latency_s = 0) {
  return {.step_s = step_s,
          .up_bits_per_s = mbit * 1e6,
          .down_bits_per_s = mbit * 1e6,
          .latency_s = latency_s};
}

/// Seconds for those bits on a line of so many Mbit/s, headers beside them.
double sending_s(double bits, double mbit) { return bits / (mbit * 1e6 * 1448 / 1526); }

TEST(PlanTraffic, CopiesOfAnExchange) {
  // Gathered: everything to all others. Summed in shares: about twice, whatever the number.
  EXPECT_THAT(copies_per_round(options("diloco", "bf16"), std::vector<double>{5e6, 5e6}), Each(1));
  EXPECT_THAT(copies_per_round(options("streaming_diloco", "e3m0"),
                               std::vector<double>{1e6, 2e6, 3e6, 4e6}),
              Each(3));
  for (const double copies :
       copies_per_round(options("diloco", "bf16"), std::vector<double>(4, 1e8))) {
    EXPECT_NEAR(copies, 2 * 3.0 / 4, 1e-5);
  }
  // Shares by rate: all are done at the same time, and the sum is that of equal ones.
  const std::vector<double> rates = {4e8, 3e8, 3e8};
  const auto copies = copies_per_round(options("diloco", "bf16"), rates);
  EXPECT_NEAR(copies[0] + copies[1] + copies[2], 2 * 2, 1e-5);
  EXPECT_NEAR(copies[0] / rates[0], copies[1] / rates[1], 1e-12);
  EXPECT_THAT(copies_per_round(options("diloco", "fp32"), std::vector<double>{1e6}),
              ElementsAre(0));
}

/// Step by step: after which everything of which size is sent, and used.
using Sent = std::tuple<int64_t, int64_t, double>;
std::vector<Sent> walked(const method::SyncOptions& sync, const std::vector<double>& values,
                         int64_t steps) {
  std::vector<Sent> out;
  if (sync.method == "single") return out;
  const method::FragmentSchedule schedule(sync.sync_every, std::ssize(values), steps);
  for (int64_t step = 1; step < steps; ++step) {
    if (sync.method == "data_parallel") out.emplace_back(step, step, values[0]);
    if (sync.method == "diloco" && step % sync.sync_every == 0) {
      out.emplace_back(step, step, values[0]);
    }
    if (sync.method != "streaming_diloco") continue;
    if (const auto p = schedule.due(step)) {
      out.emplace_back(step, std::min(step + sync.fragment_sync_delay, steps),
                       values[static_cast<size_t>(*p)]);
    }
  }
  for (const double each : values) out.emplace_back(steps, steps, each);
  return out;
}

/// Each round as often as it comes.
std::vector<Sent> written_out(const PlannedRounds& planned) {
  std::vector<Sent> out;
  for (const PlannedRound& round : planned.rounds) {
    for (int64_t k = 0; k < round.times; ++k) {
      const int64_t later = k * planned.again.every;
      out.emplace_back(round.sent_after + later, round.used_after + later, round.values);
    }
  }
  std::ranges::stable_sort(out, {}, [](const Sent& sent) { return std::get<0>(sent); });
  return out;
}

TEST(PlanTraffic, RoundsAreThoseOfTraining) {
  std::vector<method::SyncOptions> methods = {
      options("single", "fp32"), options("data_parallel", "bf16"), options("diloco", "bf16"),
      options("diloco", "bf16", 1)};
  for (const int64_t fragments : {2, 3, 4, 7}) {
    for (const int64_t delay : {0, 1, 5, 29}) methods.push_back(streaming(30, fragments, delay));
  }
  methods.push_back(streaming(2, 2, 1));
  for (const method::SyncOptions& sync : methods) {
    std::vector<double> values;
    for (int64_t p = 0; p < method::num_fragments(sync); ++p) {
      values.push_back(static_cast<double>(1000 + p));
    }
    for (const int64_t steps : {1, 2, 3, 4, 5, 29, 30, 31, 59, 60, 61, 66, 89, 90, 91, 120, 317}) {
      const PlannedRounds planned = planned_rounds(sync, values, steps);
      const std::vector<Sent> expected = walked(sync, values, steps);
      EXPECT_EQ(written_out(planned), expected)
          << sync.method << ", " << values.size() << " fragments, " << steps << " steps";
      double sum = 0;
      for (const auto& [sent, used, each] : expected) sum += each;
      EXPECT_EQ(planned.values(), sum);
      EXPECT_LE(planned.rounds.size(), 6 * values.size());
    }
  }
}

TEST(PlanTraffic, TheEmbeddingIsAFragment) {
  const auto specs = weights::parameter_specs(weights::chinchilla(6, 64, 100'000));
  const std::vector<double> values = values_sent(streaming(30, 4, 1), specs);
  ASSERT_EQ(values.size(), 4U);
  EXPECT_EQ(values[0], 100'000 * 64 + 64);  // And the last norm.
  EXPECT_EQ(values[1], values[3]);
  EXPECT_EQ(values[0] + 3 * values[1],
            static_cast<double>(specs.back().offset + specs.back().size));
  EXPECT_THAT(values_sent(options("diloco", "bf16"), specs),
              ElementsAre(values[0] + 3 * values[1]));
}

TEST(PlanTraffic, AWaitedForExchangeTakesItsBitsAndSixWays) {
  const std::vector<double> values = {1e6};
  const std::vector<LoadedIsland> two(2, island(2, 10, 0.03));
  const double exchange_s = sending_s(16e6, 10) + 3 * 0.03;  // Three times there and back.
  const auto time = [&](const method::SyncOptions& sync, int64_t steps) {
    return planned_time(planned_rounds(sync, values, steps), sync, two);
  };
  EXPECT_NEAR(time(options("data_parallel", "bf16"), 50).wall_clock_s(), 50 * (2 + exchange_s),
              1e-9);
  EXPECT_NEAR(time(options("diloco", "bf16"), 61).wall_clock_s(), 61 * 2 + 3 * exchange_s, 1e-9);
  EXPECT_NEAR(time(options("diloco", "bf16"), 9).wall_clock_s(), 9 * 2 + exchange_s, 1e-9);
  EXPECT_NEAR(time(options("diloco", "bf16"), 9).utilisation(), 18 / (18 + exchange_s), 1e-9);
}

TEST(PlanTraffic, MeansWaitForTheContributions) {
  const method::SyncOptions sync = options("diloco", "bf16");
  const auto exchange_s = [&](double latency_s) {
    const std::vector<LoadedIsland> three(3, island(2, 10, latency_s));
    const PlannedRounds rounds = planned_rounds(sync, std::vector<double>{1e6}, 30);
    return planned_time(rounds, sync, three).wall_clock_s() - 60;
  };
  const double sent_s = sending_s(16e6 * 4 / 3, 10);  // Half of it contributions, half means.
  // Where they come while others still leave, nobody waits for them;
  EXPECT_NEAR(exchange_s(0.03), sent_s + 3 * 0.03, 1e-5);
  // far away, means leave when they are there: half of the line's time, and once more both ways.
  EXPECT_NEAR(exchange_s(5), sent_s / 2 + 4 * 5, 1e-5);
}

TEST(PlanTraffic, TheLastExchangeIsNotHidden) {
  // Shorter than a period: all of it comes behind the last step.
  const std::vector<LoadedIsland> islands(2, island(20, 20, 0.03));
  const std::vector<double> values = {1e8, 3e8, 3e8, 3e8};
  const double bits = 1e9 * (4 + 8.0 / 128);
  const auto time = [&](int64_t steps, int64_t delay) {
    const method::SyncOptions sync = streaming(30, 4, delay);
    return planned_time(planned_rounds(sync, values, steps), sync, islands).wall_clock_s();
  };
  EXPECT_NEAR(time(9, 1), 9 * 20 + sending_s(bits, 20) + 3 * 0.03, 1e-9);
  // Two periods: fragment 0 after step 30, and again, with the others, at the end.
  EXPECT_NEAR(time(33, 2), 33 * 20 + sending_s(bits, 20) + 3 * 0.03, 1e-9);
  EXPECT_NEAR(time(33, 1) - time(33, 2), std::max(0.0, sending_s(0.1 * bits, 20) + 3 * 0.03 - 20),
              1e-9);
}

TEST(PlanTraffic, ALargeEmbeddingIsWaitedFor) {
  const std::vector<LoadedIsland> islands(2, island(4, 22, 0.03));
  const std::vector<double> values = {1.8e8, 2e7, 2e7, 2e7};
  const method::SyncOptions sync = streaming(30, 4, 5);
  const int64_t steps = 3000;
  const laws::RunTime time = planned_time(planned_rounds(sync, values, steps), sync, islands);
  const double bits = 4 + 8.0 / 128;
  const double embedding_s = sending_s(values[0] * bits, 22) + 3 * 0.03;
  ASSERT_GT(embedding_s, 5 * 4);
  // Nothing waits for the others. From step 30 to 2970 it is sent 99 times, and with all at the
  // end.
  const double expected_s =
      steps * 4 + 99 * (embedding_s - 5 * 4) + sending_s(2.4e8 * bits, 22) + 3 * 0.03;
  EXPECT_NEAR(time.wall_clock_s(), expected_s, 1e-6);
  EXPECT_NEAR(time.utilisation(), steps * 4 / expected_s, 1e-9);
}

TEST(PlanTraffic, EqualIslandsOnFastLinksDoNotWait) {
  const std::vector<LoadedIsland> islands(2, island(0.5, 1e11));
  for (const auto& sync :
       {options("data_parallel", "bf16"), options("diloco", "bf16"), streaming(30, 4, 1)}) {
    const std::vector<double> values(static_cast<size_t>(method::num_fragments(sync)), 1e8);
    const laws::RunTime time = planned_time(planned_rounds(sync, values, 1000), sync, islands);
    EXPECT_NEAR(time.wall_clock_s(), 500, 0.01) << sync.method;
  }
}

TEST(PlanTraffic, WaitingIsAShareOfEachIslandsTime) {
  // 40 and 25 teraflop/s: the faster waits for three eighths of its time.
  const std::vector<LoadedIsland> islands = {island(1 / 40.0, 1e9), island(1 / 25.0, 1e9)};
  const method::SyncOptions sync = options("diloco", "bf16");
  const laws::RunTime time =
      planned_time(planned_rounds(sync, std::vector<double>{1e6}, 3000), sync, islands);
  EXPECT_NEAR(time.islands[0].utilisation(), 1 - 0.375, 1e-4);
  EXPECT_NEAR(time.islands[1].utilisation(), 1, 1e-4);
  EXPECT_NEAR(time.utilisation(), 1 - 0.1875, 1e-4);
}

/// Of a seed.
struct RandomPlan {
  method::SyncOptions sync;
  std::vector<double> values;
  int64_t steps = 0;
  std::vector<LoadedIsland> islands;
};

RandomPlan random_plan(uint64_t seed) {
  uint64_t drawn = 0;
  const auto uniform = [&] { return random_uniform(seed, 1, drawn++); };
  const auto below = [&](int64_t most) {
    return static_cast<int64_t>(uniform() * static_cast<double>(most));
  };
  const int64_t every = 1 + below(40);
  RandomPlan plan;
  switch (below(3)) {
    case 0:
      plan.sync = options("data_parallel", "bf16");
      break;
    case 1:
      plan.sync = options("diloco", "bf16", every);
      break;
    default:
      plan.sync = streaming(every + 1, 2 + below(std::min<int64_t>(every, 8)), below(every + 1));
      break;
  }
  plan.values.resize(static_cast<size_t>(method::num_fragments(plan.sync)));
  for (double& each : plan.values) each = std::floor(1e5 * std::pow(10, uniform()));
  plan.steps = 1 + below(below(3) == 0 ? 60 : 3000);
  const auto num_islands = static_cast<size_t>(2 + below(5));
  for (size_t i = 0; i < num_islands; ++i) {
    plan.islands.push_back(island(0.01 + 0.1 * uniform(), std::pow(10, 4 * uniform() - 1),
                                  0.1 * uniform() * uniform()));
    plan.islands.back().down_bits_per_s *= 0.5 + 2 * uniform();
  }
  return plan;
}

TEST(PlanTraffic, TimeAndBytesAreThoseOfTheRunWrittenOut) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const RandomPlan plan = random_plan(seed);
    const PlannedRounds rounds = planned_rounds(plan.sync, plan.values, plan.steps);
    const laws::RecordedRun run = planned_run(rounds, plan.sync, plan.islands);
    laws::RecordedRun all{.islands = run.islands, .rounds = {}};
    std::vector<double> rates;
    for (const LoadedIsland& each : plan.islands) rates.push_back(each.up_bits_per_s);
    const std::vector<double> copies = copies_per_round(plan.sync, rates);
    double values = 0;
    for (const auto& [sent, used, each] : walked(plan.sync, plan.values, plan.steps)) {
      laws::RecordedRound& round = all.rounds.emplace_back(
          laws::RecordedRound{.sent_after = sent, .gathers = run.rounds[0].gathers, .parts = {}});
      for (size_t i = 0; i < copies.size(); ++i) {
        const double bytes = bits_per_value(plan.sync) * each * copies[i] / 8;
        round.parts.push_back(
            {.island = i, .used_after = used, .sent_bytes = bytes, .received_bytes = bytes});
      }
      values += each;
    }
    EXPECT_EQ(rounds.values(), values) << seed;
    const laws::RunTime expected = laws::simulate(all, planned_lines(plan.islands), 1);
    const laws::RunTime time = planned_time(rounds, plan.sync, plan.islands);
    EXPECT_NEAR(time.wall_clock_s() / expected.wall_clock_s(), 1, 1e-9) << seed;
    EXPECT_NEAR(time.utilisation(), expected.utilisation(), 1e-9) << seed;
  }
}

TEST(PlanTraffic, NothingTakesLessThanTheLeast) {
  double tightest = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const RandomPlan plan = random_plan(seed);
    const PlannedRounds rounds = planned_rounds(plan.sync, plan.values, plan.steps);
    const double least_s = least_time(rounds, plan.sync, plan.islands);
    const double time_s = planned_time(rounds, plan.sync, plan.islands).wall_clock_s();
    EXPECT_LE(least_s, time_s) << seed << ", " << plan.sync.method;
    tightest = std::max(tightest, least_s / time_s);
  }
  EXPECT_GT(tightest, 0.999);  // It does say something.
}

}  // namespace
}  // namespace atl::plan
