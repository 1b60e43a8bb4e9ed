#include "atoll/plan/plan_sharding.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "atoll/testing/plan_harness.h"

namespace atl::plan {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

PlannedIsland gpus(const std::string& name, int64_t devices, double memory_bytes = 80e9) {
  PlannedIsland out = island(name);
  out.devices = devices;
  out.memory_bytes = memory_bytes;
  return out;
}

PlannedIsland cpus(const std::string& name, int64_t processes, double memory_bytes) {
  PlannedIsland out = gpus(name, processes, memory_bytes);
  out.is_cpu = true;
  return out;
}

std::vector<std::string> names(const std::vector<PlannedShard>& shards) {
  std::vector<std::string> out;
  for (const PlannedShard& each : shards) out.push_back(each.shard);
  return out;
}

/// The largest model that all of them hold with that method.
double largest(const std::vector<PlannedIsland>& islands, const PlanTraining& train,
               const std::string& method) {
  PlanRequest asked = request(islands, {.time_s = kDay});
  asked.train = train;
  const PlanLoss loss(std::nullopt);
  const Candidates candidates(asked, loss);
  const auto way = std::ranges::find_if(candidates.ways(), [&](const PlanWay& each) {
    return each.num_islands == islands.size() && each.sync.method == method;
  });
  double most = 0;
  for (const PlannedSize& size : candidates.sizes()) {
    if (candidates.num_able(size, *way) == islands.size()) most = size.shape.law_params;
  }
  return most;
}

TEST(PlanSharding, ThePrecisionIsThatOfTheSpeeds) {
  PlanRequest asked = request({island("a"), island("b")}, {.time_s = kDay});
  EXPECT_EQ(planned_precision(asked), "fp32");
  asked.islands[0].precision = "bf16";
  EXPECT_EQ(planned_precision(asked), "fp32");
  asked.islands[1].precision = "bf16";
  EXPECT_EQ(planned_precision(asked), "bf16");
  asked.train.precision = "fp32";
  EXPECT_EQ(planned_precision(asked), "fp32");
}

TEST(PlanSharding, AnIslandMayHaveWhatItsDeviceCan) {
  PlanRequest asked = request({gpus("a", 8)}, {.time_s = kDay});
  EXPECT_THAT(names(possible_shards(asked, gpus("a", 8), {})), ElementsAre("none", "zero1"));
  EXPECT_THAT(names(possible_shards(asked, cpus("a", 4, 1e9), {})),
              ElementsAre("none", "zero1", "zero3"));
  EXPECT_THAT(names(possible_shards(asked, gpus("a", 1), {})), ElementsAre("none"));
  asked.train.shard = "zero1";
  EXPECT_THAT(names(possible_shards(asked, gpus("a", 8), {})), ElementsAre("zero1"));
  EXPECT_THAT(names(possible_shards(asked, gpus("a", 1), {})), ElementsAre("none"));
}

TEST(PlanSharding, TheLeastThatFitsIsTaken) {
  const PlanRequest asked = request({gpus("a", 8)}, {.time_s = kDay});
  const auto shards = possible_shards(asked, gpus("a", 8), {});
  const ModelSize size{.params = 1e9};
  EXPECT_EQ(least_that_fits(shards, size, 16e9).shard, "none");
  EXPECT_EQ(least_that_fits(shards, size, 15.9e9).shard, "zero1");
  EXPECT_EQ(least_that_fits(shards, size, 1e9).shard, "zero1");  // The one that lacks least.
}

TEST(PlanSharding, SmallModelsAreNotSharded) {
  const Plan small = plan_of({gpus("a", 8), gpus("b", 8)}, {.params = 3e8});
  EXPECT_THAT(small.best().choice.shards, Each(std::string("none")));
  // In that time both are needed.
  const PlanChoice large =
      plan_of({gpus("a", 8), gpus("b", 8)}, {.time_s = 60 * kDay, .params = 2.5e9}).best().choice;
  EXPECT_THAT(large.shards, ElementsAre("zero1", "zero1"));
}

TEST(PlanSharding, EachIslandHasItsOwn) {
  const Plan plan =
      plan_of({gpus("a", 8), gpus("b", 8, 640e9)}, {.time_s = 60 * kDay, .params = 2.5e9});
  const PlanChoice& best = plan.best().choice;
  ASSERT_THAT(best.setup.islands, ElementsAre(0, 1));
  EXPECT_THAT(best.shards, ElementsAre("zero1", "none"));
  EXPECT_LT(best.memory[0].moments, best.memory[1].moments);
}

TEST(PlanSharding, TwoIslandsOfEightGpusTrainLargerModels) {
  const std::vector<PlannedIsland> islands = {gpus("a", 8), gpus("b", 8)};
  for (const char* method : {"streaming_diloco", "data_parallel"}) {
    const double unsharded = largest(islands, {.shard = "none"}, method);
    const double sharded = largest(islands, {}, method);
    const double bf16 = largest(islands, {.precision = "bf16"}, method);
    const double again =
        largest(islands, {.precision = "bf16", .activation_checkpointing = true}, method);
    fmt::print("{}: {:.4g} {:.4g} {:.4g} {:.4g}\n", method, unsharded, sharded, bf16, again);
    EXPECT_GT(sharded, 1.25 * unsharded) << method;
    EXPECT_GE(bf16, sharded) << method;
    EXPECT_GT(again, 1.1 * sharded) << method;
  }
}

TEST(PlanSharding, CpusShardValuesToo) {
  const std::vector<PlannedIsland> islands = {cpus("a", 4, 32e9)};
  EXPECT_GT(largest(islands, {}, "single"), 1.3 * largest(islands, {.shard = "none"}, "single"));
  const Plan plan = plan_of(islands, {.params = 1.1e9});
  EXPECT_THAT(plan.best().choice.shards, ElementsAre("zero3"));
}

/// What the search reckons of an island before it makes a choice is what the choice comes to.
TEST(PlanSharding, WhoIsAbleHasTheMemory) {
  const std::vector<PlannedIsland> islands = {cpus("a", 4, 32e9), cpus("b", 2, 32e9)};
  const PlanRequest asked = request(islands, {.time_s = 400 * kDay});
  const PlanLoss loss(std::nullopt);
  Candidates candidates(asked, loss);
  int64_t num_compared = 0;
  for (const PlanWay& way : candidates.ways()) {
    for (const PlannedSize& size : candidates.sizes()) {
      std::vector<size_t> places;
      for (size_t i = 0; i < way.num_islands; ++i) places.push_back(i);
      const auto choice = candidates.choice(size, way, places);
      if (!choice) continue;
      const bool are_able =
          std::ranges::all_of(places, [&](size_t i) { return candidates.is_able(i, size, way); });
      EXPECT_EQ(are_able, choice->fits()) << way.sync.method << " " << size.model.params;
      ++num_compared;
    }
  }
  EXPECT_GT(num_compared, 50);
}

TEST(PlanSharding, EveryIslandCanDealItsRows) {
  for (const auto& [first, second] : {std::pair<int64_t, int64_t>(8, 8), {4, 3}, {8, 1}, {6, 4}}) {
    const Plan plan = plan_of({gpus("a", first, 20e9), gpus("b", second, 20e9)}, {.params = 2e8});
    for (const PlannedRun& run : plan.choices) {
      const PlanChoice& choice = run.choice;
      const int64_t rows = choice.batch_rows / std::ssize(choice.setup.islands);
      for (const size_t i : choice.setup.islands) {
        EXPECT_EQ(rows % (choice.micro_batch_rows * (i == 0 ? first : second)), 0);
      }
    }
  }
}

TEST(PlanSharding, ASpeedInAnotherPrecisionIsSaid) {
  PlanRequest asked = request({gpus("a", 8), gpus("b", 8)}, {.params = 3e8});
  EXPECT_THAT(make_plan(asked, std::nullopt).notes, Not(Contains(HasSubstr("speed of"))));
  asked.train.precision = "bf16";
  asked.islands[1].precision = "bf16";
  const PlanChoice fast = make_plan(asked, std::nullopt).best().choice;
  EXPECT_THAT(make_plan(asked, std::nullopt).notes,
              Contains(testing::AllOf(HasSubstr("the run is in bf16"),
                                      HasSubstr("the speed of 'a' was measured in fp32"))));
  // Nobody says that it is faster.
  asked.train.precision = "fp32";
  EXPECT_EQ(make_plan(asked, std::nullopt).best().choice.loads[0].step_s, fast.loads[0].step_s);
}

TEST(PlanSharding, NothingIsSaidOfOneDeviceAlone) {
  for (const std::string& note : plan_of({gpus("a", 8)}, {.time_s = kDay}).notes) {
    EXPECT_THAT(note, Not(HasSubstr("zero1")));
  }
}

TEST(PlanSharding, ARefusalNamesTheSharding) {
  EXPECT_THAT(refusal({gpus("a", 8)}, {.params = 2e10}),
              HasSubstr("with single, train.shard = \"zero1\", one row at a time"));
  EXPECT_THAT(refusal({gpus("a", 1)}, {.params = 2e10}), HasSubstr("with single, one row"));
}

}  // namespace
}  // namespace atl::plan
