#include "atoll/sweep/sweep_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

namespace atl::sweep {
namespace {

using testing::HasSubstr;

/// Trains whatever a search asks for, and counts.
class Trainer {
 public:
  using Loss = std::function<std::optional<double>(const SweepPoint&)>;
  explicit Trainer(Loss loss) : loss_(std::move(loss)) {}

  CellState finish(const CellTask& task) {
    for (int round = 0; round < 1000; ++round) {
      CellState state = search(task, false);
      if (state.done) return state;
      EXPECT_FALSE(state.wanted.empty());
      // In an order of its own: the end must not depend on it.
      for (auto one = state.wanted.rbegin(); one != state.wanted.rend(); ++one) {
        EXPECT_TRUE(results_.emplace(*one, Outcome{loss_(*one)}).second) << "trained twice";
      }
    }
    ADD_FAILURE() << "the search does not end";
    return {};
  }
  CellState search(const CellTask& task, bool pretend) const {
    return search_cell(
        task,
        [&](const SweepPoint& point) -> std::optional<Outcome> {
          const auto found = results_.find(point);
          if (found == results_.end()) return std::nullopt;
          return found->second;
        },
        obstacle_, pretend);
  }
  void refuse(Obstacle obstacle) { obstacle_ = std::move(obstacle); }
  const std::map<SweepPoint, Outcome>& results() const { return results_; }
  size_t count(double share) const {
    return static_cast<size_t>(std::ranges::count_if(
        results_, [&](const auto& entry) { return entry.first.tokens_share == share; }));
  }

 private:
  Loss loss_;
  Obstacle obstacle_ = [](const SweepPoint&) { return std::string(); };
  std::map<SweepPoint, Outcome> results_;
};

/// A bowl over log2(lr) and the outer rate, its bottom at these values.
Trainer::Loss bowl(double lr, double outer_lr, double batch = 0) {
  return [=](const SweepPoint& point) -> std::optional<double> {
    double loss = 2 + std::pow(std::log2(point.at[kLr] / lr), 2);
    if (point.at[kOuterLr] > 0) loss += 10 * std::pow(point.at[kOuterLr] - outer_lr, 2);
    if (batch > 0) loss += std::pow(std::log2(point.at[kBatchTokens] / batch), 2);
    return loss + 0.01 * static_cast<double>(point.seed);
  };
}

CellTask task_of(std::vector<double> lr, std::vector<double> outer_lr = {},
                 std::vector<double> batch = {512}) {
  return {.cell = {"a", 2, "diloco", 30, 1},
          .axes = {std::move(lr), std::move(outer_lr), std::move(batch)},
          .seeds = {1},
          .extensions = 4,
          .batch_unit = 64};
}

TEST(SweepSearch, TrainsTheWholeGridAndSaysThatTheBestIsInterior) {
  Trainer trainer(bowl(2e-3, 0.6));
  const CellState state = trainer.finish(task_of({1e-3, 2e-3, 4e-3}, {0.4, 0.6, 0.8}));
  EXPECT_EQ(trainer.results().size(), 9U);
  ASSERT_TRUE(state.best);
  EXPECT_EQ(state.best->point.at[kLr], 2e-3);
  EXPECT_EQ(state.best->point.at[kOuterLr], 0.6);
  EXPECT_EQ(state.axes[kLr].end, AxisEnd::kInterior);
  EXPECT_EQ(state.axes[kOuterLr].end, AxisEnd::kInterior);
  EXPECT_EQ(state.axes[kBatchTokens].end, AxisEnd::kFixed);
  EXPECT_EQ(state.axes[kLr].extensions, 0);
}

TEST(SweepSearch, ExtendsByTheSameRatioOrDifferenceUntilTheBestIsInterior) {
  Trainer trainer(bowl(8e-3, 1.0));
  const CellState state = trainer.finish(task_of({1e-3, 2e-3}, {0.4, 0.6}));
  EXPECT_EQ(state.best->point.at[kLr], 8e-3);
  EXPECT_EQ(state.best->point.at[kOuterLr], 1.0);
  EXPECT_EQ(state.axes[kLr].end, AxisEnd::kInterior);
  EXPECT_EQ(state.axes[kLr].high, 0.016);
  EXPECT_EQ(state.axes[kLr].extensions, 3);
  EXPECT_EQ(state.axes[kOuterLr].high, 1.2);
  std::set<double> rates;
  for (const auto& [point, outcome] : trainer.results()) rates.insert(point.at[kLr]);
  EXPECT_EQ(rates, (std::set<double>{1e-3, 2e-3, 4e-3, 8e-3, 0.016}));
}

TEST(SweepSearch, SaysWhatStaysAtTheBorder) {
  Trainer trainer(bowl(1.0, 0.6));
  CellTask task = task_of({1e-3, 2e-3});
  task.extensions = 2;
  const CellState state = trainer.finish(task);
  EXPECT_TRUE(state.done);
  EXPECT_EQ(state.axes[kLr].end, AxisEnd::kHigh);
  EXPECT_EQ(state.axes[kLr].high, 8e-3);
  EXPECT_EQ(state.axes[kLr].extensions, 2);
  EXPECT_THAT(state.axes[kLr].limit, HasSubstr("all 2 extensions are used"));
  EXPECT_EQ(trainer.results().size(), 4U);
}

TEST(SweepSearch, AnAxisEndsWhereNoValueIsLeft) {
  Trainer trainer(bowl(1e-3, 0.0));
  const CellState outer = trainer.finish(task_of({1e-3}, {0.4, 0.6}));
  EXPECT_EQ(outer.axes[kOuterLr].end, AxisEnd::kLow);
  EXPECT_EQ(outer.axes[kOuterLr].low, 0.2);
  EXPECT_THAT(outer.axes[kOuterLr].limit, HasSubstr("no further value"));
  Trainer small(bowl(1e-3, 0, 1));
  const CellState batch = small.finish(task_of({1e-3}, {}, {128, 256}));
  EXPECT_EQ(batch.axes[kBatchTokens].low, 64);
  EXPECT_EQ(batch.axes[kBatchTokens].end, AxisEnd::kLow);
}

TEST(SweepSearch, ObstaclesEndAnAxis) {
  Trainer trainer(bowl(1.0, 0));
  trainer.refuse([](const SweepPoint& point) {
    return point.at[kLr] > 5e-3 ? std::string("too hot") : std::string();
  });
  const CellState state = trainer.finish(task_of({1e-3, 2e-3}));
  EXPECT_EQ(state.axes[kLr].high, 4e-3);
  EXPECT_EQ(state.axes[kLr].limit, "too hot");
}

TEST(SweepSearch, ASingleValueHasNoBorder) {
  Trainer trainer(bowl(1.0, 0.6));
  const CellState state = trainer.finish(task_of({1e-3}));
  EXPECT_EQ(trainer.results().size(), 1U);
  EXPECT_EQ(state.axes[kLr].end, AxisEnd::kFixed);
  EXPECT_EQ(state.axes[kOuterLr].end, AxisEnd::kUnused);
}

TEST(SweepSearch, DescentFindsTheSamePlaceWithFewerPoints) {
  const std::vector<double> lr = {1e-3, 2e-3, 4e-3, 8e-3, 16e-3};
  const std::vector<double> outer = {0.2, 0.4, 0.6, 0.8, 1.0};
  const std::vector<double> batch = {256, 512, 1024, 2048, 4096};
  Trainer all(bowl(8e-3, 0.4, 2048));
  const CellState grid = all.finish(task_of(lr, outer, batch));
  Trainer some(bowl(8e-3, 0.4, 2048));
  CellTask task = task_of(lr, outer, batch);
  task.search = Search::kDescent;
  const CellState descent = some.finish(task);
  EXPECT_EQ(all.results().size(), 125U);
  EXPECT_LT(some.results().size(), 25U);
  EXPECT_EQ(descent.best->point, grid.best->point);
  for (const AxisState& axis : descent.axes) EXPECT_EQ(axis.end, AxisEnd::kInterior);
}

TEST(SweepSearch, ADescentStartsWhereItIsTold) {
  const std::vector<double> lr = {1e-3, 2e-3, 4e-3, 8e-3, 16e-3};
  const std::vector<double> outer = {0.2, 0.4, 0.6, 0.8, 1.0};
  CellTask task = task_of(lr, outer);
  task.search = Search::kDescent;
  Trainer middle(bowl(16e-3, 0.2));
  const CellState from_middle = middle.finish(task);
  task.start = {16e-3, 0.2, 0};
  Trainer trainer(bowl(16e-3, 0.2));
  EXPECT_EQ(trainer.search(task, true).wanted.size(), 4U);  // No outer rate is below 0.2.
  const CellState state = trainer.finish(task);
  EXPECT_EQ(state.best->point, from_middle.best->point);
  EXPECT_EQ(trainer.results().size(), 4U);
  EXPECT_GT(middle.results().size(), 8U);
  // Beyond what is given it starts at the nearest value, and extends from there.
  task.start = {0.064, 0, 0};
  Trainer beyond(bowl(0.064, 0.6));
  EXPECT_EQ(beyond.finish(task).best->point.at[kLr], 0.064);
  EXPECT_FALSE(beyond.results().contains(SweepPoint{.cell = task.cell, .at = {4e-3, 0.6, 0}}));
}

TEST(SweepSearch, InADiagonalValleyOnlyTheGridFindsTheBottom) {
  // Rate and batch have their best together, twice the one with twice the other.
  const auto valley = [](const SweepPoint& point) -> std::optional<double> {
    const double lr = std::log2(point.at[kLr] / 1e-3);
    const double batch = std::log2(point.at[kBatchTokens] / 256);
    return 2 + std::pow(lr - batch, 2) + 0.01 * std::pow(lr + batch - 6, 2);
  };
  const std::vector<double> lr = {1e-3, 2e-3, 4e-3, 8e-3};
  const std::vector<double> batch = {256, 512, 1024, 2048};
  CellTask task = task_of(lr, {}, batch);
  task.extensions = 1;
  Trainer all(valley);
  const CellState grid = all.finish(task);
  EXPECT_NEAR(grid.best->loss, 2, 1e-9);
  task.search = Search::kDescent;
  Trainer some(valley);
  const CellState descent = some.finish(task);
  // It stops on the valley's floor: interior along each axis, and lower only diagonally.
  EXPECT_EQ(descent.axes[kLr].end, AxisEnd::kInterior);
  EXPECT_EQ(descent.axes[kBatchTokens].end, AxisEnd::kInterior);
  EXPECT_GT(descent.best->loss, 2.1);
}

TEST(SweepSearch, HalvingSaysOfNeighboursThatHadFewerTokens) {
  CellTask task = task_of({1e-3, 2e-3, 4e-3, 8e-3});
  task.search = Search::kHalving;
  Trainer trainer(bowl(4e-3, 0));
  const CellState state = trainer.finish(task);
  EXPECT_EQ(trainer.count(1), 1U);
  EXPECT_EQ(state.axes[kLr].end, AxisEnd::kInterior);
  EXPECT_TRUE(state.axes[kLr].beside_lesser);
  EXPECT_FALSE(state.axes[kLr].beside_failed);
  Trainer hot([](const SweepPoint& point) -> std::optional<double> {
    if (point.at[kLr] > 5e-3) return std::nullopt;
    return bowl(4e-3, 0)(point);
  });
  EXPECT_TRUE(hot.finish(task).axes[kLr].beside_failed);
  task.search = Search::kGrid;
  Trainer whole(bowl(4e-3, 0));
  EXPECT_FALSE(whole.finish(task).axes[kLr].beside_lesser);
}

TEST(SweepSearch, HalvingTrainsTheBestShareFurther) {
  Trainer trainer(bowl(4e-3, 0.6));
  CellTask task = task_of({1e-3, 2e-3, 4e-3, 8e-3}, {0.4, 0.6, 0.8});
  task.search = Search::kHalving;
  task.halving_rate = 2;
  task.halving_rungs = 3;
  const CellState state = trainer.finish(task);
  EXPECT_EQ(trainer.count(0.25), 12U);
  EXPECT_EQ(trainer.count(0.5), 6U);
  EXPECT_EQ(trainer.count(1), 3U);
  EXPECT_EQ(state.best->point.at[kLr], 4e-3);
  EXPECT_EQ(state.best->point.tokens_share, 1);
  // Its neighbours were tried, with fewer tokens.
  EXPECT_EQ(state.axes[kLr].end, AxisEnd::kInterior);
  EXPECT_EQ(state.axes[kOuterLr].end, AxisEnd::kInterior);
}

TEST(SweepSearch, HalvingTriesTheNextWhereAllThatWereKeptFail) {
  // The hotter the better, until it diverges with all tokens.
  Trainer trainer([](const SweepPoint& point) -> std::optional<double> {
    if (point.at[kLr] > 3e-3 && point.tokens_share == 1) return std::nullopt;
    return bowl(1.0, 0)(point);
  });
  CellTask task = task_of({1e-3, 2e-3, 4e-3, 8e-3});
  task.search = Search::kHalving;
  task.extensions = 0;
  const CellState state = trainer.finish(task);
  EXPECT_EQ(trainer.count(0.5), 2U);
  EXPECT_EQ(trainer.count(1), 4U);  // Both of those fail: so the others after all.
  ASSERT_TRUE(state.best);
  EXPECT_EQ(state.best->point.at[kLr], 2e-3);
  EXPECT_TRUE(state.axes[kLr].beside_failed);
  // What failed with fewer tokens is not tried with more.
  for (const double share : {0.25, 0.5}) {
    Trainer none([&](const SweepPoint& point) -> std::optional<double> {
      if (point.tokens_share >= share) return std::nullopt;
      return bowl(1.0, 0)(point);
    });
    EXPECT_FALSE(none.finish(task).best);
    EXPECT_EQ(none.count(1), 0U);
  }
  Trainer mild([](const SweepPoint& point) -> std::optional<double> {
    if (point.at[kLr] > 5e-3 && point.tokens_share == 1) return std::nullopt;
    return bowl(1.0, 0)(point);
  });
  const CellState found = mild.finish(task);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(found.best->point.at[kLr], 4e-3);
  EXPECT_TRUE(found.axes[kLr].beside_failed);
}

TEST(SweepSearch, APlaceWhereASeedFailsIsNotTheBest) {
  Trainer trainer([](const SweepPoint& point) -> std::optional<double> {
    if (point.at[kLr] == 4e-3 && point.seed < 2) return std::nullopt;
    return 3 - point.at[kLr];
  });
  CellTask task = task_of({1e-3, 2e-3, 4e-3});
  task.seeds = {0, 1, 2};
  const CellState state = trainer.finish(task);
  EXPECT_EQ(state.best->point.at[kLr], 2e-3);
  EXPECT_EQ(state.best->num_failed, 0U);
  EXPECT_EQ(state.num_failed, 2U);
  // Where all places have failures the fewest count, and the best names a seed that finished.
  task = task_of({4e-3});
  task.seeds = {0, 1, 2};
  const CellState hot = trainer.finish(task);
  EXPECT_EQ(hot.best->point.seed, 2);
  EXPECT_EQ(hot.best->num_seeds, 1U);
  EXPECT_EQ(hot.best->num_failed, 2U);
}

TEST(SweepSearch, SeedsAreAveraged) {
  Trainer trainer([](const SweepPoint& point) -> std::optional<double> {
    return point.at[kLr] == 2e-3 ? 2 + 0.1 * static_cast<double>(point.seed) : 3;
  });
  CellTask task = task_of({1e-3, 2e-3, 4e-3});
  task.seeds = {1, 2, 3};
  const CellState state = trainer.finish(task);
  EXPECT_EQ(trainer.results().size(), 9U);
  EXPECT_NEAR(state.best->loss, 2.2, 1e-12);
  EXPECT_NEAR(state.best->deviation, 0.1, 1e-12);
  EXPECT_EQ(state.best->num_seeds, 3U);
}

TEST(SweepSearch, FailedPointsAreLeftOutAndSaid) {
  Trainer trainer([](const SweepPoint& point) -> std::optional<double> {
    if (point.at[kLr] > 3e-3) return std::nullopt;
    return bowl(1e-2, 0)(point);
  });
  const CellState state = trainer.finish(task_of({1e-3, 2e-3, 4e-3}));
  EXPECT_EQ(state.best->point.at[kLr], 2e-3);
  EXPECT_EQ(state.num_failed, 1U);
  EXPECT_EQ(state.axes[kLr].end, AxisEnd::kInterior);
  EXPECT_TRUE(state.axes[kLr].beside_failed);
  Trainer none([](const SweepPoint&) { return std::nullopt; });
  const CellState failed = none.finish(task_of({1e-3, 2e-3}));
  EXPECT_TRUE(failed.done);
  EXPECT_FALSE(failed.best);
  EXPECT_EQ(failed.num_failed, 2U);
}

TEST(SweepSearch, ADescentWhoseMiddleFailsTriesOtherGivenPlaces) {
  Trainer trainer([](const SweepPoint& point) -> std::optional<double> {
    if (point.at[kLr] > 1.5e-3) return std::nullopt;
    return bowl(1e-3, 0)(point);
  });
  CellTask task = task_of({1e-3, 2e-3, 4e-3, 8e-3, 16e-3});
  task.search = Search::kDescent;
  const CellState state = trainer.finish(task);
  EXPECT_EQ(state.best->point.at[kLr], 1e-3);
  EXPECT_TRUE(state.axes[kLr].beside_failed);
  Trainer none([](const SweepPoint&) -> std::optional<double> { return std::nullopt; });
  EXPECT_FALSE(none.finish(task).best);
  EXPECT_EQ(none.results().size(), 5U);
}

TEST(SweepSearch, PretendingForeseesWhatIsLeft) {
  Trainer trainer(bowl(2e-3, 0.6));
  CellTask task = task_of({1e-3, 2e-3, 4e-3}, {0.4, 0.6, 0.8});
  EXPECT_EQ(trainer.search(task, true).wanted.size(), 9U);
  task.search = Search::kDescent;
  EXPECT_EQ(trainer.search(task, true).wanted.size(), 5U);
  trainer.finish(task);
  EXPECT_TRUE(trainer.search(task, true).wanted.empty());
}

TEST(SweepSearch, WhatIsPretendedRanksBehindWhatFinishedWithAFailure) {
  // Each place loses one seed; what is not known must not look better for having lost none yet.
  Trainer trainer([](const SweepPoint& point) -> std::optional<double> {
    if (point.seed == 1) return std::nullopt;
    return bowl(2e-3, 0)(point);
  });
  CellTask task = task_of({1e-3, 2e-3, 4e-3});
  task.search = Search::kDescent;
  task.seeds = {1, 2};
  const CellState first = trainer.search(task, true);
  EXPECT_EQ(first.wanted.size(), 6U);
  trainer.finish(task);
  EXPECT_TRUE(trainer.search(task, true).wanted.empty());
}

TEST(SweepSearch, ValuesBeyondAnAxisAreTheSameOnEveryMachine) {
  const std::vector<double> lr = {1e-3, 1.4142e-3};
  EXPECT_EQ(axis_value(kLr, lr, 2, 1), 0.00199996);
  EXPECT_EQ(axis_value(kLr, lr, -1, 1), 0.000707114);
  EXPECT_EQ(axis_value(kOuterLr, {0.2, 0.4}, 3, 1), 0.8);
  EXPECT_EQ(axis_value(kOuterLr, {0.2, 0.4}, -1, 1), std::nullopt);
  EXPECT_EQ(axis_value(kOuterLr, {0.3, 0.5}, -1, 1), 0.1);  // Less than half a step is a value.
  EXPECT_EQ(axis_value(kOuterLr, {0.3, 0.6}, -1, 1), std::nullopt);
  EXPECT_EQ(axis_value(kOuterLr, {0.4, 0.6, 0.8}, -2, 1), std::nullopt);
  EXPECT_EQ(axis_value(kBatchTokens, {192, 384}, -1, 64), 128);  // 96 is no multiple of 64.
}

}  // namespace
}  // namespace atl::sweep
