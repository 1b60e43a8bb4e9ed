#include "atoll/sweep/sweep_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "atoll/sweep/sweep_report.h"
#include "atoll/sweep/sweep_results.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::sweep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kSizes = "[sizes.a]\n[sizes.b]\n[sizes.c]\n[sizes.d]\n";
constexpr const char* kRates =
    "[[grid]]\nname = 'rates'\nreplicas = [0, 2, 4]\nlr = [1e-3, 2e-3, 4e-3]\nouter_lr = [0.4, "
    "0.6]\n"
    "sync_every = 30\nbatch_tokens = 512\n";
constexpr const char* kPeriods =
    "[[grid]]\nname = 'periods'\nsizes = 'b'\nreplicas = 2\nlr = 'best'\nouter_lr = 'best'\n"
    "sync_every = [10, 100]\nbatch_tokens = 'best'\nseeds = [1, 2]\n";

PlanRules rules() {
  return {.sequence_length = 32, .obstacle = [](const SweepPoint&) { return std::string(); }};
}

double params_of(const std::string& size) { return 1e4 * std::exp2(2 * (size[0] - 'a')); }

/// A law of sizes and replicas; best at lr 2e-3 and an outer rate of 0.6.
double loss_of(const SweepPoint& point) {
  double loss = 20 * std::pow(params_of(point.cell.size), -0.1);
  if (point.cell.replicas > 0) loss *= std::pow(static_cast<double>(point.cell.replicas), 0.02);
  loss += 0.1 * std::pow(std::log2(point.at[kLr] / 2e-3), 2);
  if (point.at[kOuterLr] > 0) loss += std::pow(point.at[kOuterLr] - 0.6, 2);
  return loss;
}

struct Results {
  std::map<SweepPoint, Outcome> known;
  Known lookup() const {
    return [this](const SweepPoint& point) -> std::optional<Outcome> {
      const auto found = known.find(point);
      if (found == known.end()) return std::nullopt;
      return found->second;
    };
  }
  SweepState finish(const SweepSpec& spec,
                    const std::function<std::optional<double>(const SweepPoint&)>& loss = loss_of) {
    for (int round = 0; round < 100; ++round) {
      SweepState state = plan_sweep(spec, rules(), lookup(), false);
      if (state.done()) return state;
      for (const SweepPoint& point : state.wanted()) known[point] = {loss(point)};
    }
    ADD_FAILURE() << "the sweep does not end";
    return {};
  }
};

SweepSpec spec_of(const std::string& grids) { return parse_sweep(kSizes + grids, "s.toml"); }

ResultRules result_rules() {
  return {
      .size = [](const std::string& size) { return SizeNumbers{params_of(size), 2, 32, 96, 1000}; },
      .tokens = [](const SweepPoint& point) { return 20 * params_of(point.cell.size); }};
}

TEST(SweepPlan, DataParallelHasNeitherOuterRateNorPeriod) {
  const SweepSpec spec = spec_of(kRates);
  Results results;
  const SweepState state = results.finish(spec);
  ASSERT_EQ(state.cells.size(), 12U);
  EXPECT_EQ(state.cells[0].cell, (Cell{"a", 0, "data_parallel", 0, 1}));
  EXPECT_EQ(state.cells[0].state.points.size(), 3U);
  EXPECT_EQ(state.cells[1].cell, (Cell{"a", 2, "diloco", 30, 1}));
  EXPECT_EQ(state.cells[1].state.best->point.at[kOuterLr], 0.6);
  EXPECT_EQ(state.cells[1].state.axes[kOuterLr].high, 0.8);  // Extended until interior.
}

TEST(SweepPlan, ALargerSizeStartsWhereTheOneBeforeItEnded) {
  const std::string grid =
      "[[grid]]\nname = 'rates'\nsizes = ['c', 'a', 'd']\nreplicas = 2\nsearch = 'descent'\n"
      "lr = [1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 32e-3, 64e-3]\nouter_lr = [0.4, 0.6, 0.8]\n"
      "sync_every = 30\nbatch_tokens = 512\n";
  const auto loss = [](const SweepPoint& point) {
    const double best = point.cell.size == "c" ? 32e-3 : 16e-3;
    return 3 + std::pow(std::log2(point.at[kLr] / best), 2) + std::pow(point.at[kOuterLr] - 0.6, 2);
  };
  const auto rates_of = [](const GridCell& cell) {
    std::set<double> rates;
    for (const SweepPoint& point : cell.state.points) rates.insert(point.at[kLr]);
    return rates;
  };
  Results results;
  const SweepSpec spec = spec_of(grid + "start = 'size_before'\n");
  const SweepState first = plan_sweep(spec, rules(), results.lookup(), false);
  EXPECT_FALSE(first.cells[0].state.points.empty());
  EXPECT_TRUE(first.cells[1].state.points.empty());  // It waits.
  const SweepState guess = plan_sweep(spec, rules(), results.lookup(), true);
  EXPECT_EQ(guess.cells[2].state.wanted.size(), 5U);
  const SweepState state = results.finish(spec, loss);
  EXPECT_EQ(rates_of(state.cells[0]), (std::set<double>{4e-3, 8e-3, 16e-3, 32e-3, 64e-3}));
  EXPECT_EQ(rates_of(state.cells[1]), (std::set<double>{8e-3, 16e-3, 32e-3, 64e-3}));
  EXPECT_EQ(rates_of(state.cells[2]), (std::set<double>{8e-3, 16e-3, 32e-3}));
  for (const GridCell& cell : state.cells) {
    EXPECT_EQ(cell.state.best->point.at[kLr], cell.cell.size == "c" ? 32e-3 : 16e-3);
  }
  // One that found nothing says nothing.
  Results none;
  const SweepState late = none.finish(spec, [&](const SweepPoint& point) -> std::optional<double> {
    if (point.cell.size == "c") return std::nullopt;
    return loss(point);
  });
  ASSERT_TRUE(late.done());
  EXPECT_FALSE(late.cells[0].state.best);
  EXPECT_EQ(late.cells[1].state.points.front().at[kLr], 8e-3);
}

TEST(SweepPlan, BestValuesComeFromTheEarlierGrid) {
  const SweepSpec spec = spec_of(std::string(kRates) + kPeriods);
  const SweepState first = plan_sweep(spec, rules(), Results().lookup(), false);
  EXPECT_TRUE(first.cells.back().state.points.empty());  // It waits.
  EXPECT_FALSE(first.cells.back().state.done);
  Results results;
  const SweepState state = results.finish(spec);
  const GridCell& last = state.cells.back();
  EXPECT_EQ(last.cell, (Cell{"b", 2, "diloco", 100, 1}));
  ASSERT_EQ(last.state.points.size(), 2U);
  EXPECT_EQ(last.state.points[0].at, (std::array<double, 3>{2e-3, 0.6, 512}));
  EXPECT_EQ(last.state.points[1].seed, 2);
  EXPECT_EQ(last.state.axes[kLr].end, AxisEnd::kFixed);
}

TEST(SweepPlan, BestValuesAreThoseOfTheSameBatch) {
  constexpr const char* kBatches =
      "[[grid]]\nname = 'batches'\nreplicas = 2\nlr = [1e-3, 2e-3, 4e-3]\nouter_lr = 'best'\n"
      "sync_every = 30\nbatch_tokens = [256, 512, 1024]\n";
  constexpr const char* kSeeds =
      "[[grid]]\nname = 'seeds'\nreplicas = 2\nlr = 'best'\nouter_lr = 'best'\nsync_every = 30\n"
      "batch_tokens = 512\nseeds = [1, 2]\n";
  // The smaller the batch the lower the loss, and the lower the best rate.
  const auto loss = [](const SweepPoint& point) {
    const double batch = std::log2(point.at[kBatchTokens] / 512);
    return 3 + batch + std::pow(std::log2(point.at[kLr] / 2e-3) - batch, 2) +
           std::pow(point.at[kOuterLr] - 0.6, 2);
  };
  Results results;
  const SweepState state = results.finish(spec_of(std::string(kRates) + kBatches + kSeeds), loss);
  const GridCell& last = state.cells.back();
  EXPECT_EQ(last.grid, "seeds");
  EXPECT_EQ(last.state.best->point.at, (std::array<double, 3>{2e-3, 0.6, 512}));
}

TEST(SweepPlan, BestValuesAreThoseOfTheNearestBatchThenPeriodThenTokens) {
  // Each source has its own best rate; which one the last grid takes tells the source.
  const auto source = [](const char* name, const char* sync_every, const char* batch,
                         const char* factor) {
    return fmt::format(
        "[[grid]]\nname = '{}'\nsizes = 'a'\nreplicas = 2\nlr = [1e-3, 2e-3, 4e-3, 8e-3, 16e-3]\n"
        "outer_lr = 0.6\nsync_every = {}\nbatch_tokens = {}\ntokens_factor = {}\n",
        name, sync_every, batch, factor);
  };
  const auto rate_for = [&](const std::string& sources, const char* sync_every, const char* batch,
                            const char* factor,
                            const std::function<double(const SweepPoint&)>& best) {
    const std::string last = fmt::format(
        "[[grid]]\nname = 'last'\nsizes = 'a'\nreplicas = 2\nlr = 'best'\nouter_lr = 0.6\n"
        "sync_every = {}\nbatch_tokens = {}\ntokens_factor = {}\n",
        sync_every, batch, factor);
    const auto loss = [&](const SweepPoint& point) {
      // The lowest loss is that of the smallest period, batch and factor.
      return 3 + std::log(static_cast<double>(point.cell.sync_every)) +
             std::log(point.at[kBatchTokens]) + std::log(point.cell.tokens_factor) +
             std::pow(std::log2(point.at[kLr] / best(point)), 2);
    };
    return Results().finish(spec_of(sources + last), loss).cells.back().state.best->point.at[kLr];
  };
  const auto by_period = [](const SweepPoint& point) {
    return point.cell.sync_every == 10 ? 2e-3 : 4e-3;
  };
  const std::string periods = source("p", "[10, 30]", "512", "1");
  EXPECT_EQ(rate_for(periods, "100", "512", "1", by_period), 4e-3);
  EXPECT_EQ(rate_for(periods, "5", "512", "1", by_period), 2e-3);
  const auto by_batch = [](const SweepPoint& point) {
    return point.at[kBatchTokens] < 4096 ? 2e-3 : 4e-3;
  };
  const std::string batches =
      source("few", "30", "[512, 1024]", "1") + source("many", "100", "4096", "1");
  EXPECT_EQ(rate_for(batches, "100", "512", "1", by_batch), 2e-3);  // Before the period.
  EXPECT_EQ(rate_for(batches, "30", "8192", "1", by_batch), 4e-3);
  const auto by_factor = [](const SweepPoint& point) {
    return point.cell.tokens_factor == 1 ? 2e-3 : 4e-3;
  };
  const std::string factors = source("f", "30", "512", "[1, 4]");
  EXPECT_EQ(rate_for(factors, "30", "512", "8", by_factor), 4e-3);
}

TEST(SweepPlan, BestValuesAreNotThoseWithWhichSeedsFail) {
  const auto grid = [](const char* name, const char* lr) {
    return fmt::format(
        "[[grid]]\nname = '{}'\nsizes = 'a'\nreplicas = 0\nlr = {}\nbatch_tokens = 512\n"
        "seeds = [1, 2]\n",
        name, lr);
  };
  const auto loss = [](const SweepPoint& point) -> std::optional<double> {
    if (point.at[kLr] == 4e-3 && point.seed == 1) return std::nullopt;
    return 3 - point.at[kLr];
  };
  Results results;
  const SweepState state = results.finish(
      spec_of(grid("hot", "4e-3") + grid("mild", "2e-3") + grid("last", "'best'")), loss);
  EXPECT_EQ(state.cells.back().state.best->point.at[kLr], 2e-3);
}

TEST(SweepPlan, ASizeStartsFromItsOwnCellOfItsOwnGrid) {
  // The optima of data-parallel and of two replicas differ, and an earlier grid has the same cells
  // with another optimum (its batch is another).
  const auto grid = [](const char* name, const char* batch, const char* start) {
    return fmt::format(
        "[[grid]]\nname = '{}'\nsizes = ['a', 'b']\nreplicas = [0, 2]\nsearch = 'descent'\n"
        "lr = [1e-3, 2e-3, 4e-3, 8e-3, 16e-3, 32e-3, 64e-3]\nouter_lr = 0.6\nsync_every = 30\n"
        "batch_tokens = {}\n{}",
        name, batch, start);
  };
  const SweepSpec spec =
      spec_of(grid("first", "2048", "") + grid("second", "512", "start = 'size_before'\n"));
  const auto loss = [](const SweepPoint& point) {
    const double best = point.at[kBatchTokens] == 2048 ? 8e-3
                        : point.cell.replicas == 0     ? 1e-3
                                                       : 64e-3;
    return 3 + std::pow(std::log2(point.at[kLr] / best), 2);
  };
  // One point at a time, from either end: the same points are asked for.
  std::array<std::vector<SweepPoint>, 2> asked;
  for (const bool from_the_end : {false, true}) {
    Results results;
    SweepState state = plan_sweep(spec, rules(), results.lookup(), false);
    for (int i = 0; i < 1000 && !state.done(); ++i) {
      const std::vector<SweepPoint> wanted = state.wanted();
      ASSERT_FALSE(wanted.empty());
      const SweepPoint& next = from_the_end ? wanted.back() : wanted.front();
      ASSERT_TRUE(results.known.emplace(next, Outcome{loss(next)}).second);
      state = plan_sweep(spec, rules(), results.lookup(), false);
    }
    ASSERT_TRUE(state.done());
    EXPECT_EQ(state.cells[6].cell, (Cell{"b", 0, "data_parallel", 0, 1}));
    EXPECT_EQ(state.cells[6].state.points.front().at[kLr], 1e-3);
    EXPECT_EQ(state.cells[7].state.points.front().at[kLr], 64e-3);
    EXPECT_EQ(state.cells[3].state.points.front().at[kLr], 8e-3);  // The middle.
    asked[from_the_end ? 1 : 0] = state.points();
  }
  EXPECT_EQ(asked[0], asked[1]);
}

TEST(SweepPlan, AGridWhoseSourceFailedIsBlockedAndOthersGoOn) {
  const SweepSpec spec = spec_of(std::string(kRates) + kPeriods);
  Results results;
  SweepState state;
  for (int round = 0; round < 100; ++round) {
    state = plan_sweep(spec, rules(), results.lookup(), false);
    if (state.done()) break;
    for (const SweepPoint& point : state.wanted()) {
      const bool fails = point.cell.size == "b" && point.cell.replicas == 2;
      results.known[point] = {fails ? std::nullopt : std::optional(loss_of(point))};
    }
  }
  EXPECT_TRUE(state.done());
  EXPECT_THAT(state.cells.back().blocked, HasSubstr("none of the points of 'rates' finished"));
  EXPECT_TRUE(state.cells.front().state.best);
}

TEST(SweepPlan, TheSamePointOfTwoGridsIsAskedForOnce) {
  std::string again = kRates;
  again.replace(again.find("'rates'"), 7, "'again'");
  const SweepState state = plan_sweep(spec_of(kRates + again), rules(), Results().lookup(), false);
  EXPECT_EQ(state.wanted().size(), 4U * (3 + 6 + 6));
}

TEST(SweepPlan, PretendingSeesThroughGridsThatWait) {
  const SweepSpec spec = spec_of(std::string(kRates) + kPeriods);
  const SweepState state = plan_sweep(spec, rules(), Results().lookup(), true);
  EXPECT_EQ(state.cells.back().state.wanted.size(), 2U);
}

TEST(SweepPlan, RefusesBestWithoutASource) {
  std::string elsewhere = kPeriods;
  elsewhere.replace(elsewhere.find("replicas = 2"), 12, "replicas = 8");
  EXPECT_THAT(
      message_of<UsageError>(
          [&] { check_plan(spec_of(std::string(kRates) + elsewhere), rules(), "s.toml"); }),
      AllOf(HasSubstr("grid 'periods'"), HasSubstr("no earlier grid has b with 8 replicas")));
}

TEST(SweepPlan, RefusesBatchesThatCannotBeDealt) {
  std::string odd = kRates;
  odd.replace(odd.find("512"), 3, "480");  // 15 rows of 32.
  EXPECT_THAT(message_of<UsageError>([&] { check_plan(spec_of(odd), rules(), "s.toml"); }),
              AllOf(HasSubstr("batch_tokens = 480 cannot be dealt to 2 replicas"),
                    HasSubstr("a multiple of 64")));
}

TEST(SweepPlan, StepsAreWholePeriodsWhereThatChangesLittle) {
  EXPECT_EQ(steps_for(512e3, 512, 0), 1000);
  EXPECT_EQ(steps_for(512e4 + 1024, 512, 30), 9990);
  EXPECT_EQ(steps_for(512e3, 512, 300), 1000);  // 900 would be a tenth less.
  EXPECT_EQ(steps_for(100, 512, 30), 1);
}

TEST(SweepResults, LawsTablesAndTheLargestSize) {
  const SweepSpec spec = spec_of(std::string(kRates) + kPeriods);
  Results results;
  const SweepState state = results.finish(spec);
  const auto families =
      families_of(state, result_rules(), results.lookup(), laws::FitOptions{.bootstrap = 0});
  ASSERT_EQ(families.size(), 3U);
  EXPECT_EQ(families[0].name, "diloco-H30");
  EXPECT_EQ(families[1].name, "diloco-H10");
  EXPECT_FALSE(families[1].fit);
  ASSERT_TRUE(families[0].fit);
  EXPECT_NEAR(families[0].fit->loss.joint->A(), 20, 1e-9);
  EXPECT_NEAR(families[0].fit->loss.joint->alpha(), -0.1, 1e-12);
  EXPECT_NEAR(families[0].fit->loss.joint->beta(), 0.02, 1e-12);
  ASSERT_EQ(families[0].held_out.size(), 3U);
  for (const HeldOutLoss& one : families[0].held_out) {
    EXPECT_EQ(one.size, "d");
    EXPECT_NEAR(*one.independent, one.trained, 1e-9);
    EXPECT_EQ(one.joint.has_value(), one.replicas > 0);
  }
  EXPECT_EQ(families[0].fit->lr_optima.points.size(), 12U);
  EXPECT_NEAR(families[0].fit->lr_optima.points[0].value, 2e-3, 1e-9);
  // The table is one that `atoll scaling fit` takes, with the same law.
  const auto again =
      laws::fit_runs(laws::parse_table(laws::table_text(families[0].all), "results.csv").runs,
                     laws::FitOptions{.bootstrap = 0});
  EXPECT_NEAR(again.loss.joint->alpha(), -0.1, 1e-12);
}

TEST(SweepResults, TheReportSaysWhatIsNotInteriorAndWhatFailed) {
  SweepSpec spec = spec_of(kRates);
  spec.extensions = 0;
  Results results;
  const SweepState state = results.finish(spec);
  const auto families =
      families_of(state, result_rules(), results.lookup(), laws::FitOptions{.bootstrap = 0});
  const SweepPoint failed = state.cells[1].state.points[0];
  const std::string report = sweep_report({.name = "x", .num_points = 60, .count = "all"}, state,
                                          families, {{failed, "no memory"}}, result_rules());
  EXPECT_THAT(report, AllOf(HasSubstr("outer_lr at its largest, 0.6: no extensions are allowed"),
                            HasSubstr("lr interior"), HasSubstr("no memory"),
                            HasSubstr("The largest size, predicted from the others"),
                            HasSubstr("+0.00 %"), Not(HasSubstr("No law"))));
}

}  // namespace
}  // namespace atl::sweep
