#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/error.h"
#include "atoll/testing/plan_harness.h"

namespace atl::plan {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(Plan, EqualIslandsOnFastLinesDoNotWait) {
  std::vector<PlannedIsland> islands = {island("a", 1e9), island("b", 1e9)};
  for (PlannedIsland& each : islands) each.latency_s = 0;
  const Plan plan = plan_of(islands, {.time_s = 5 * kDay});
  const PlanChoice& best = plan.best().choice;
  EXPECT_THAT(best.setup.islands, ElementsAre(0, 1));
  EXPECT_GT(best.utilisation, 0.99);
  EXPECT_LE(best.utilisation, 1);
  EXPECT_LE(best.wall_clock_s, 5 * kDay);
  // What two computed, and their share of the tokens each.
  const double flops = 6 * best.shape.atoll_params * best.tokens(PlanGoal{});
  EXPECT_NEAR(best.computing_s, flops / (8 * 40e12), 1e-6 * best.computing_s);
}

TEST(Plan, EqualIslandsAllTakePart) {
  for (const size_t count : {2, 3, 4, 6}) {
    std::vector<PlannedIsland> islands;
    for (size_t i = 0; i < count; ++i) islands.push_back(island("i" + std::to_string(i), 1000));
    const Plan plan = plan_of(islands, {.time_s = 3 * kDay});
    EXPECT_THAT(plan.best().choice.setup.islands, SizeIs(count));
    EXPECT_THAT(plan.why, HasSubstr("all islands take part"));
  }
}

TEST(Plan, AFasterLineIsNeverWorse) {
  double before = 1e9;
  for (const double mbit : {0.5, 2.0, 8.0, 20.0, 60.0, 200.0, 1000.0, 1e5}) {
    const Plan plan =
        plan_of({island("a", mbit), island("b", mbit), island("c", mbit)}, {.time_s = 2 * kDay});
    const double loss = plan.best().choice.loss;
    EXPECT_LE(loss, before) << mbit;
    before = loss;
  }
  // And with the size fixed it does not take longer.
  before = 1e18;
  for (const double mbit : {0.5, 2.0, 8.0, 20.0, 60.0, 200.0, 1000.0, 1e5}) {
    const Plan plan = plan_of({island("a", mbit), island("b", mbit)}, {.params = 3e8});
    EXPECT_LE(plan.best().choice.wall_clock_s, before * 1.0101) << mbit;  // A shorter delay.
    before = std::min(before, plan.best().choice.wall_clock_s);
  }
}

TEST(Plan, MoreTimeIsNeverAWorseLoss) {
  double before = 1e9;
  for (const double days : {0.02, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0, 100.0, 365.0}) {
    std::vector<PlannedIsland> islands = {island("a"), island("b", 50), island("c", 10)};
    islands[1].memory_bytes = islands[2].memory_bytes = 80e9;
    islands[2].flops_per_s = 10e12;
    const Plan plan = plan_of(islands, {.time_s = days * kDay});
    EXPECT_LE(plan.best().choice.loss, before) << days;
    EXPECT_LE(plan.best().choice.wall_clock_s, days * kDay);
    before = plan.best().choice.loss;
  }
}

TEST(Plan, OneThatSlowsTheOthersIsLeftOut) {
  std::vector<PlannedIsland> islands = {island("a"), island("b"), island("slow")};
  islands[2].flops_per_s = 2e12;
  const Plan plan = plan_of(islands, {.time_s = 2 * kDay});
  EXPECT_THAT(plan.best().choice.setup.islands, ElementsAre(0, 1));
  EXPECT_THAT(plan.why, HasSubstr("none with 'slow' is better"));
  islands[2] = island("far", 0.01);
  EXPECT_THAT(plan_of(islands, {.time_s = 2 * kDay}).best().choice.setup.islands,
              ElementsAre(0, 1));
}

TEST(Plan, ChoicesAreNotDominated) {
  const Plan plan = plan_of({island("a"), island("b", 50), island("c", 20)}, {.time_s = 2 * kDay});
  ASSERT_GE(plan.choices.size(), 3U);
  EXPECT_LE(plan.choices.size(), 8U);
  for (size_t i = 0; i < plan.choices.size(); ++i) {
    const PlanChoice& a = plan.choices[i].choice;
    for (size_t k = 0; k < plan.choices.size(); ++k) {
      const PlanChoice& b = plan.choices[k].choice;
      EXPECT_FALSE(k != i && b.loss <= a.loss && b.wall_clock_s <= a.wall_clock_s &&
                   b.total_bytes() <= a.total_bytes());
    }
    EXPECT_GE(a.loss, plan.best().choice.loss);
    EXPECT_TRUE(a.fits());
    EXPECT_LE(a.wall_clock_s, 2 * kDay);
  }
}

/// Streaming between all islands, every 30 steps.
PlanChoice streamed(const PlanRequest& asked) {
  for (const PlannedRun& run : make_plan(asked, std::nullopt).choices) {
    const PlanSetup& setup = run.choice.setup;
    const bool is_every_30 = setup.sync.method == "streaming_diloco" && setup.sync.sync_every == 30;
    if (is_every_30 && setup.islands.size() == asked.islands.size()) return run.choice;
  }
  throw InputError("there is none");
}

/// Seconds on the slower line of a fragment of so many values, headers beside them; and there and
/// back three times, 30 ms each.
double exchange_s(double values, double mbit) {
  return values * (4 + 8.0 / 128) / (mbit * 1e6 * 1448 / 1526) + 0.09;
}

/// As quick as a single one, but a step has a row for each of 64: few steps.
PlannedIsland many_gpus(const std::string& name, double mbit) {
  PlannedIsland out = single_gpu(name, mbit);
  out.devices = 64;
  out.flops_per_s /= 64;
  return out;
}

TEST(Plan, ARunShorterThanAPeriodStillSendsEverything) {
  const PlanChoice choice =
      streamed(request({many_gpus("a", 120), many_gpus("b", 120)}, {.tokens = 3e6, .params = 1e9}));
  ASSERT_EQ(choice.steps, 11);
  EXPECT_NEAR(choice.wall_clock_s, choice.computing_s + exchange_s(choice.shape.atoll_params, 120),
              1e-6);
  EXPECT_NEAR(choice.utilisation, choice.computing_s / choice.wall_clock_s, 1e-9);
}

TEST(Plan, AShortRunsLastExchangeIsWaitedFor) {
  const PlanChoice choice =
      streamed(request({many_gpus("a", 20), many_gpus("b", 20)}, {.tokens = 8.7e6, .params = 1e9}));
  ASSERT_EQ(choice.steps, 33);
  EXPECT_NEAR(choice.wall_clock_s, choice.computing_s + exchange_s(choice.shape.atoll_params, 20),
              1e-6);
  EXPECT_GT(1 - choice.utilisation, 0.2);
  EXPECT_LE(choice.least_s, choice.wall_clock_s);
}

TEST(Plan, ALargeVocabularysEmbeddingIsWaitedFor) {
  const PlanChoice choice = streamed(
      request({single_gpu("a", 22), single_gpu("b", 22)}, {.params = 3e8, .vocab_size = 256'000}));
  const double embedding = 256'000.0 * static_cast<double>(choice.shape.hidden) +
                           static_cast<double>(choice.shape.hidden);
  const auto& sync = choice.setup.sync;
  EXPECT_EQ(choice.values.front(), embedding);
  const double waiting_s = exchange_s(embedding, 22) -
                           static_cast<double>(sync.fragment_sync_delay) * choice.loads[0].step_s;
  const auto periods = static_cast<double>((choice.steps - 1) / sync.sync_every);
  EXPECT_NEAR(choice.wall_clock_s,
              choice.computing_s + periods * waiting_s + exchange_s(choice.shape.atoll_params, 22),
              1e-6 * choice.wall_clock_s);
  EXPECT_GT(1 - choice.utilisation, 0.12);
}

TEST(Plan, TimesAreThoseOfTheRunsThatArePlanned) {
  std::vector<PlannedIsland> islands = {island("a", 300), island("b", 40), single_gpu("c", 15)};
  islands[1].latency_s = 0.2;
  islands[2].down_bits_per_s = 100e6;
  const PlanRequest asked = request(islands, {.time_s = kDay});
  size_t num_shared = 0;
  for (const PlannedRun& planned : make_plan(asked, std::nullopt).choices) {
    const PlanChoice& choice = planned.choice;
    if (choice.setup.islands.size() < 2) continue;
    num_shared += 1;
    const auto config = Shapes(32'000, true).config(choice.shape, 2048);
    const method::SyncOptions& sync = choice.setup.sync;
    const auto values = values_sent(sync, weights::parameter_specs(config));
    std::vector<laws::SimulatedIsland> lines;
    std::vector<LoadedIsland> loads;
    const double rows =
        static_cast<double>(choice.batch_rows) / static_cast<double>(choice.setup.islands.size());
    for (const size_t i : choice.setup.islands) {
      const PlannedIsland& own = islands[i];
      lines.push_back({.up = own.up_bits_per_s * 1e-9 * 1448 / 1526,
                       .down = own.down_bits_per_s * 1e-9 * 1448 / 1526,
                       .latency_s = own.latency_s / 2});
      loads.push_back({.step_s = 6 * choice.shape.atoll_params * rows * 2048 /
                                 (static_cast<double>(own.devices) * own.flops_per_s),
                       .up_bits_per_s = own.up_bits_per_s});
    }
    const laws::RecordedRun run =
        planned_run(planned_rounds(sync, values, choice.steps), sync, loads);
    const laws::RunTime time = laws::simulate(run, lines, 1);
    EXPECT_NEAR(choice.wall_clock_s, time.wall_clock_s(), 1e-9 * time.wall_clock_s());
    EXPECT_NEAR(choice.utilisation, time.utilisation(), 1e-9);
    EXPECT_LE(choice.least_s, time.wall_clock_s());
    std::vector<double> sent(lines.size());
    for (size_t r = 0; r < run.rounds.size(); ++r) {
      const int64_t step = run.rounds[r].sent_after;
      const bool is_repeated = step > run.again.after && step <= run.again.after + run.again.every;
      for (const laws::RecordedPart& part : run.rounds[r].parts) {
        sent[part.island] +=
            part.sent_bytes * static_cast<double>(is_repeated ? 1 + run.again.times : 1);
      }
    }
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_NEAR(choice.sent_bytes[i], sent[i], 1e-9 * sent[i]);
      EXPECT_NEAR(choice.spent[i].waiting_s, time.islands[i].waiting_s, 1e-6);
    }
  }
  EXPECT_GE(num_shared, 2U);
}

TEST(Plan, ASlowLineIsLoadedLess) {
  const PlanGoal goal{.params = 3e8};
  const Plan fast = plan_of({island("a", 1e5), island("b", 1e5)}, goal);
  const Plan slow = plan_of({island("a", 50), island("b", 50)}, goal);
  EXPECT_LE(slow.best().choice.total_bytes(), fast.best().choice.total_bytes());
  EXPECT_GE(slow.best().choice.setup.sync.sync_every, fast.best().choice.setup.sync.sync_every);
}

TEST(Plan, TokensBoundTheSize) {
  const Plan plan = plan_of({island("a"), island("b")}, {.tokens = 4e9});
  const PlanChoice& best = plan.best().choice;
  EXPECT_LE(best.tokens(PlanGoal{}), 4e9);
  EXPECT_NEAR(best.tokens(PlanGoal{}) / best.shape.law_params, 20, 0.2);
  EXPECT_GT(best.shape.law_params, 1.9e8);
  EXPECT_LT(best.shape.law_params, 2.0e8 + 1);
  // Fewer for each parameter: a larger model, undertrained.
  const Plan wide = plan_of({island("a"), island("b")}, {.tokens = 4e9, .tokens_per_param = 10});
  EXPECT_NEAR(wide.best().choice.shape.law_params, 4e8, 0.03 * 4e8);
}

TEST(Plan, ParamsAreFixedAndTokensExact) {
  const Plan plan = plan_of({island("a"), island("b")}, {.tokens = 50e9, .params = 5e8});
  const PlanChoice& best = plan.best().choice;
  EXPECT_NEAR(best.shape.law_params, 5e8, 0.02 * 5e8);
  EXPECT_NEAR(best.tokens(PlanGoal{}), 50e9, 1e-3 * 50e9);
  EXPECT_THAT(plan.best().loss.extrapolation, HasSubstr("tokens a parameter"));
}

TEST(Plan, ATargetIsReachedSoonest) {
  const PlanGoal goal{.loss = 2.6};
  const Plan plan = plan_of({island("a", 1000), island("b", 1000), island("c", 1000)}, goal);
  const PlanChoice& best = plan.best().choice;
  EXPECT_LE(best.loss, 2.6);
  EXPECT_GT(best.loss, 2.55);  // Not a larger model than it takes.
  for (const PlannedRun& run : plan.choices) {
    EXPECT_LE(run.choice.loss, 2.6);
    EXPECT_GE(run.choice.wall_clock_s, best.wall_clock_s);
  }
  // Within that time, too.
  const Plan within = plan_of({island("a", 1000), island("b", 1000), island("c", 1000)},
                              {.time_s = 1.01 * best.wall_clock_s, .loss = 2.6});
  EXPECT_LE(within.best().choice.wall_clock_s, 1.01 * best.wall_clock_s);
}

TEST(Plan, MemoryBoundsTheSizeAndTheMicroBatch) {
  PlannedIsland small = island("a");
  small.memory_bytes = 16e9;
  const Plan plan = plan_of({small}, {.time_s = 365 * kDay});
  const PlanChoice& best = plan.best().choice;
  EXPECT_LE(best.memory[0].device, 0.9 * 16e9);
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("memory, not time, limits the size")));
  EXPECT_EQ(best.batch_rows % best.micro_batch_rows, 0);
  const Plan large = plan_of({island("a")}, {.params = best.shape.law_params});
  EXPECT_GT(large.best().choice.micro_batch_rows, best.micro_batch_rows);
}

TEST(Plan, RefusesForMemory) {
  PlannedIsland tiny = island("tiny");
  tiny.memory_bytes = 50e6;
  EXPECT_THAT(refusal({tiny}, {.time_s = kDay}),
              AllOf(HasSubstr("memory is short"), HasSubstr("the smallest model"),
                    HasSubstr("'tiny'"), HasSubstr("are missing")));
  EXPECT_THAT(refusal({island("a"), island("b")}, {.params = 8e11}),
              AllOf(HasSubstr("memory is short: the model"), HasSubstr("640.0 GB"),
                    HasSubstr("are missing")));
}

TEST(Plan, RefusesForTimeSayingHowMuch) {
  // Computing alone: 6 N 20 N / speed.
  const PlanGoal goal{.time_s = kDay, .params = 2e9};
  const std::string message = refusal({island("a")}, goal);
  EXPECT_THAT(message, AllOf(HasSubstr("time is short"), HasSubstr("times as long")));
  const double exact = 120 * 2e9 * 2e9 / 160e12 / kDay;
  const size_t end = message.find(" times as long");
  const double said = std::stod(message.substr(message.rfind(' ', end - 1) + 1));
  EXPECT_NEAR(said, exact, 0.05 * exact);
}

TEST(Plan, SaysHowMuchMemoryIsMissing) {
  std::vector<PlannedIsland> islands = {island("a", 100)};
  islands[0].memory_bytes = 80e9;
  const PlanGoal goal{.params = 1e10};
  const std::string said = refusal(islands, goal);
  const size_t end = said.find(" GB are missing");
  ASSERT_NE(end, std::string::npos) << said;
  const double missing = 1e9 * std::stod(said.substr(said.rfind(' ', end - 1) + 1));
  islands[0].memory_bytes += 0.99 * missing;
  EXPECT_THAT(refusal(islands, goal), HasSubstr("memory is short"));
  islands[0].memory_bytes += 0.02 * missing;
  EXPECT_NO_THROW(plan_of(islands, goal));
}

TEST(Plan, SaysWhatItsModelsAndLawsAreNotFor) {
  const std::vector<PlannedIsland> islands = {island("a", 100)};
  EXPECT_THAT(refusal(islands, {.time_s = kDay, .params = 1}),
              AllOf(HasSubstr("'params' = 1 is below the smallest model that is planned, 5.15e+05"),
                    HasSubstr("vocabulary of 32000 ('vocab_size')")));
  EXPECT_THAT(refusal(islands, {.time_s = kDay, .params = 1e15}), HasSubstr("above the largest"));
  EXPECT_THAT(refusal(islands, {.time_s = kDay, .params = 9.3e4, .vocab_size = 4096}),
              HasSubstr("is between the models that are planned; give 7.17e+04 or 1.05e+05"));
  const auto notes = [&](int64_t vocab_size) {
    return plan_of(islands, {.time_s = kDay, .vocab_size = vocab_size}).notes;
  };
  EXPECT_THAT(notes(300), testing::Contains(HasSubstr("a vocabulary of 32768: with 300")));
  EXPECT_THAT(notes(32'000), testing::Not(testing::Contains(HasSubstr("a vocabulary of"))));
}

TEST(Plan, RefusesForBandwidthSayingWhichLine) {
  // Two islands would do it in about 0.85 of the time that is there, one alone would not.
  const double one_alone = 120 * 1e9 * 1e9 / 160e12;
  const PlanGoal goal{.time_s = 0.6 * one_alone, .params = 1e9};
  std::vector<PlannedIsland> islands = {island("a", 1000), island("b", 1000)};
  islands[1].up_bits_per_s = 0.2e6;
  const std::string message = refusal(islands, goal);
  EXPECT_THAT(message, AllOf(HasSubstr("bandwidth is short"), HasSubstr("'b' up: "),
                             HasSubstr("instead of 0.2 Mbit/s")));
  EXPECT_THAT(message, testing::Not(HasSubstr("'a' up")));
  // With what it asks for there is a plan; with much less there is none.
  const size_t place = message.find("'b' up: ") + 8;
  const double needed = std::stod(message.substr(place)) *
                        (message.find("Gbit/s instead") == std::string::npos ? 1e6 : 1e9);
  islands[1].up_bits_per_s = 1.02 * needed;
  EXPECT_NO_THROW(plan_of(islands, goal));
  islands[1].up_bits_per_s = 0.8 * needed;
  EXPECT_THAT(refusal(islands, goal), HasSubstr("bandwidth is short"));
}

TEST(Plan, RefusesForLossSayingWhichIsReachable) {
  const std::string in_time = refusal({island("a")}, {.time_s = kDay, .loss = 2.3});
  EXPECT_THAT(in_time, AllOf(HasSubstr("time is short"), HasSubstr("the loss 2.3"),
                             HasSubstr("within 24 h"), HasSubstr("is reached, with")));
  const Plan possible = plan_of({island("a")}, {.time_s = kDay});
  EXPECT_THAT(in_time, HasSubstr(fmt::format("{:.3f} is reached", possible.best().choice.loss)));
  EXPECT_THAT(refusal({island("a")}, {.loss = 0.5}),
              AllOf(HasSubstr("the loss 0.5 is beyond reach"), HasSubstr("the lowest is")));
}

TEST(Plan, RefusesForTokens) {
  EXPECT_THAT(refusal({island("a")}, {.tokens = 1e6}), HasSubstr("tokens are short"));
  EXPECT_THAT(refusal({island("a")}, {.tokens = 3000, .params = 2e6}),
              HasSubstr("fewer than one batch"));
}

TEST(Plan, OwnLawsWithoutDataParallelLeaveItOut) {
  std::vector<laws::Run> runs;
  for (const double n : {1e8, 2e8, 4e8, 8e8}) {
    for (const double m : {2.0, 4.0}) {
      runs.push_back(
          {.params = n, .replicas = m, .loss = 20 * std::pow(n, -0.1) * std::pow(m, 0.01)});
    }
  }
  const PlanRequest asked = request({island("a"), island("b")}, {.time_s = 2 * kDay});
  const Plan plan = make_plan(asked, runs);
  for (const PlannedRun& run : plan.choices) {
    EXPECT_NE(run.choice.setup.sync.method, "data_parallel");
    EXPECT_NE(run.choice.setup.sync.method, "single");
  }
  EXPECT_THAT(plan.notes, testing::Contains(HasSubstr("published laws")));
}

TEST(Plan, WhereMemoryEndsMoreTokensGoOn) {
  PlannedIsland small = island("a");
  small.devices = 1;
  small.memory_bytes = 16e9;
  const Plan plan = plan_of({small}, {.time_s = 60 * kDay});
  const PlanChoice& best = plan.best().choice;
  const double ratio = best.tokens(PlanGoal{}) / best.shape.law_params;
  EXPECT_GT(ratio, 100);
  EXPECT_LT(ratio, 200.1);
  EXPECT_GT(best.wall_clock_s, 0.8 * 60 * kDay);
  for (const double fixed : {20.0, 50.0, 100.0, 200.0}) {
    const Plan other = plan_of({small}, {.time_s = 60 * kDay, .tokens_per_param = fixed});
    // Sizes and tokens are tried a tenth apart.
    EXPECT_LE(best.loss, 1.001 * other.best().choice.loss) << fixed;
    EXPECT_NEAR(other.best().choice.tokens(PlanGoal{}) / other.best().choice.shape.law_params,
                fixed, 0.01 * fixed);
  }
  EXPECT_THAT(plan.why, HasSubstr("with 20 tokens a parameter and up to 200 where no larger"));
  // So is a loss that no model of that size has at 20.
  const Plan target = plan_of({small}, {.loss = 2.55});
  EXPECT_LE(target.best().choice.loss, 2.55);
  EXPECT_GT(target.best().choice.tokens(PlanGoal{}) / target.best().choice.shape.law_params, 40);
  EXPECT_THAT(refusal({small}, {.loss = 2.55, .tokens_per_param = 20}),
              AllOf(HasSubstr("beyond reach"), HasSubstr("with 20 tokens a parameter")));
  // Where there is memory, the laws' own.
  const Plan large = plan_of({island("a")}, {.time_s = 10 * kDay});
  EXPECT_NEAR(large.best().choice.tokens(PlanGoal{}) / large.best().choice.shape.law_params, 20,
              0.1);
  // A size that is fixed takes what the time allows.
  const Plan fixed = plan_of({island("a")}, {.time_s = 4 * kDay, .params = 3e8});
  EXPECT_GT(fixed.best().choice.wall_clock_s, 4 * kDay / 1.25);
}

TEST(Plan, SmallModelsTakeTheTimeToo) {
  PlannedIsland gpu = single_gpu("a", 100);
  PlannedIsland slow = single_gpu("a", 100);
  slow.flops_per_s = 10e9;
  for (const PlannedIsland& each : {gpu, slow}) {
    double before = 1e9;
    for (const double time_s : {5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 1000.0}) {
      const PlanGoal goal{.time_s = time_s, .sequence_length = 64, .vocab_size = 512};
      const Plan plan = plan_of({each}, goal);
      const PlanChoice& best = plan.best().choice;
      EXPECT_GT(best.wall_clock_s, 0.8 * time_s);
      EXPECT_LT(best.loss, before);
      EXPECT_GE(best.steps, 300);
      EXPECT_THAT(plan.notes, testing::Not(testing::Contains(HasSubstr("memory"))));
      before = best.loss;
    }
  }
}

TEST(Plan, SaysWhatLimitsTheSizeWhereTimeIsLeft) {
  PlannedIsland slow = island("a");
  slow.flops_per_s = 10e9;
  const auto notes = [&](double time_s) {
    const PlanGoal goal{
        .time_s = time_s, .tokens_per_param = 20, .sequence_length = 64, .vocab_size = 4096};
    return plan_of({slow}, goal).notes;
  };
  EXPECT_THAT(notes(32), testing::Contains(AllOf(
                             HasSubstr("the next larger model, of 105.2k parameters, takes longer"),
                             HasSubstr("of 32 s are used; more 'tokens_per_param'"))));
  const auto said = plan_of({island("a")}, {.time_s = kDay, .tokens = 1e8}).notes;
  EXPECT_THAT(said, testing::Contains(AllOf(HasSubstr("'tokens', not time, limits the training"),
                                            testing::Not(HasSubstr("not tried")))));
  std::vector<laws::Run> growing;
  for (const double n : {1e8, 2e8, 4e8}) {
    growing.push_back({.params = n, .replicas = 0, .loss = 2 * std::pow(n, 0.01)});
  }
  const auto odd = make_plan(request({island("a")}, {.time_s = kDay}), growing).notes;
  EXPECT_THAT(odd, testing::Contains(HasSubstr("the laws give larger models no lower loss")));
  EXPECT_THAT(odd, testing::Contains(HasSubstr("the loss grows with size")));
}

TEST(Plan, ABatchHasARowForEachDevice) {
  PlannedIsland many = island("a");
  many.devices = 4000;
  const Plan plan = plan_of({many}, {.params = 1e8});
  EXPECT_GE(plan.best().choice.batch_rows, 4000);
  EXPECT_THAT(plan.notes, testing::Contains(AllOf(HasSubstr("is larger than the law's range"),
                                                  HasSubstr("whole rows"))));
}

/// Power laws of size for one replica, and of the batch with that exponent.
std::vector<laws::Run> runs_with_batches(double exponent) {
  std::vector<laws::Run> runs;
  for (const double n : {1e6, 2e6, 4e6, 8e6}) {
    for (const double times : {0.5, 1.0, 2.0}) {
      laws::Run run{.params = n, .replicas = 1, .loss = 8 * std::pow(n, -0.1)};
      run.batch = times * 512 * std::pow(n / 1e6, exponent);
      run.loss += 0.01 * std::abs(std::log2(times));
      runs.push_back(run);
    }
  }
  return runs;
}

TEST(Plan, ABatchLeavesAFewHundredSteps) {
  // 1e27 tokens in a batch, as the law goes on.
  const Plan plan = make_plan(request({island("a")}, {.params = 1e9}), runs_with_batches(8));
  const PlanChoice& best = plan.best().choice;
  EXPECT_GE(best.settings.batch_tokens.value, 1e25);
  EXPECT_GE(best.steps, 300);
  EXPECT_LE(best.steps, 310);
  EXPECT_THAT(plan.notes, testing::Contains(AllOf(HasSubstr("is smaller than the law's range"),
                                                  HasSubstr("fewer than 300 steps"))));
  const Plan flat = make_plan(request({island("a")}, {.params = 1e9}), runs_with_batches(1));
  EXPECT_GT(flat.best().choice.steps, 1000);
}

std::vector<laws::Run> runs_of(double replicas) {
  std::vector<laws::Run> runs;
  for (const double n : {1e8, 2e8, 4e8}) {
    runs.push_back({.params = n, .replicas = replicas, .loss = 20 * std::pow(n, -0.1)});
  }
  return runs;
}

TEST(Plan, ALawOfOtherReplicasIsNoLaw) {
  const std::string message =
      message_of([&] { make_plan(request({island("a")}, {.params = 2e8}), runs_of(2)); });
  EXPECT_THAT(message, AllOf(HasSubstr("a law of 2 replicas"), HasSubstr("none for 1 island")));
  // Two of three do.
  const Plan pair =
      make_plan(request({island("a"), island("b"), island("c")}, {.params = 2e8}), runs_of(2));
  for (const PlannedRun& run : pair.choices) EXPECT_THAT(run.choice.setup.islands, SizeIs(2));
  // A lone row of other replicas, and first, takes nothing from it.
  std::vector<laws::Run> mixed = {{.params = 1e8, .replicas = 8, .loss = 3}};
  for (const laws::Run& run : runs_of(0)) mixed.push_back(run);
  EXPECT_EQ(
      make_plan(request({island("a")}, {.params = 2e8}), mixed).best().choice.setup.sync.method,
      "single");
}

TEST(Plan, SpansAreReadable) {
  EXPECT_EQ(span_text(14 * kDay), "14 d");
  EXPECT_EQ(span_text(kDay), "24 h");
  EXPECT_EQ(span_text(600), "10 min");
  EXPECT_EQ(span_text(1.5), "1.5 s");
}

}  // namespace
}  // namespace atl::plan
