// What a plan is made of: shapes, groups, methods' copies, loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "atoll/laws/published.h"
#include "atoll/plan/plan_groups.h"
#include "atoll/plan/plan_loss.h"
#include "atoll/plan/plan_memory.h"
#include "atoll/plan/plan_shape.h"
#include "atoll/weights/presets.h"

namespace atl::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

method::SyncOptions options(const char* method, const char* codec, int64_t every = 30) {
  method::SyncOptions sync;
  sync.method = method;
  sync.codec = codec;
  sync.sync_every = every;
  return sync;
}

TEST(PlanShape, ThePapersTableIsAmongThem) {
  const Shapes shapes(32'768, true);
  for (const char* name :
       {"chinchilla-35m", "chinchilla-90m", "chinchilla-180m", "chinchilla-335m", "chinchilla-550m",
        "chinchilla-1.3b", "chinchilla-2.4b", "chinchilla-4b", "chinchilla-10b"}) {
    const weights::ModelConfig preset = weights::preset(name);
    const auto hidden = static_cast<double>(preset.hidden_size);
    const double params =
        laws::papers_params(static_cast<double>(preset.num_layers), hidden, 4 * hidden, 32'768);
    const PlannedShape shape = shapes.near(params);
    EXPECT_EQ(shapes.config(shape, 2048), preset) << name;
    EXPECT_DOUBLE_EQ(shape.law_params, params);
    EXPECT_DOUBLE_EQ(shape.atoll_params, static_cast<double>(weights::num_parameters(preset)));
  }
}

TEST(PlanShape, TheLadderRisesByATenth) {
  for (const bool papers : {true, false}) {
    const auto ladder = Shapes(32'000, papers).ladder();
    EXPECT_LT(ladder.front().law_params, 1.1e6);
    EXPECT_GT(ladder.back().law_params, 1e11);
    for (size_t i = 1; i < ladder.size(); ++i) {
      const double ratio = ladder[i].law_params / ladder[i - 1].law_params;
      EXPECT_GT(ratio, 1);
      if (ladder[i].hidden <= 256) continue;
      EXPECT_LT(ratio, 1.25) << ladder[i].law_params;
    }
  }
}

TEST(PlanShape, SmallModelsRiseLittleMore) {
  for (const int64_t vocab_size : {512, 4096, 32'000}) {
    const auto ladder = Shapes(vocab_size, true).ladder();
    EXPECT_LT(ladder.front().law_params, 16.2 * static_cast<double>(vocab_size) + 4e3);
    for (size_t i = 1; i < ladder.size(); ++i) {
      const double most = ladder[i].hidden < 64 ? 1.5 : 1.35;
      EXPECT_LT(ladder[i].law_params, most * ladder[i - 1].law_params) << ladder[i].hidden;
    }
  }
}

TEST(PlanShape, EveryShapeIsAModel) {
  const Shapes shapes(4096, false);
  for (const PlannedShape& shape : shapes.ladder()) {
    const weights::ModelConfig config = shapes.config(shape, 512);
    EXPECT_NO_THROW(weights::check(config));
    EXPECT_EQ(config.hidden_size / config.num_heads % 2, 0);
    EXPECT_DOUBLE_EQ(shape.atoll_params, static_cast<double>(weights::num_parameters(config)));
    EXPECT_EQ(config.max_positions, 512);
  }
}

TEST(PlanGroups, NoGroupIsBetterInBoth) {
  // Numbers that look random, with some that are equal.
  std::vector<RankedIsland> islands;
  for (size_t i = 0; i < 9; ++i) {
    islands.push_back({.place = i,
                       .flops_per_s = static_cast<double>(i * 5 % 7),
                       .line_s = static_cast<double>(i * i % 11)});
  }
  const auto slowest = [&](const std::vector<size_t>& group) {
    double flops_per_s = 1e9;
    double line_s = 0;
    for (const size_t i : group) {
      flops_per_s = std::min(flops_per_s, islands[i].flops_per_s);
      line_s = std::max(line_s, islands[i].line_s);
    }
    return std::pair(flops_per_s, line_s);
  };
  for (size_t count = 1; count <= islands.size(); ++count) {
    const auto groups = best_groups(islands, count);
    EXPECT_LE(groups.size(), islands.size() - count + 1);
    for (const auto& group : groups) EXPECT_THAT(group, SizeIs(count));
    for (size_t bits = 1; bits < (size_t{1} << islands.size()); ++bits) {
      std::vector<size_t> any;
      for (size_t i = 0; i < islands.size(); ++i) {
        if ((bits >> i & 1) != 0) any.push_back(i);
      }
      if (any.size() != count) continue;
      const auto [flops_per_s, line_s] = slowest(any);
      EXPECT_TRUE(std::ranges::any_of(groups, [&](const auto& group) {
        return slowest(group).first >= flops_per_s && slowest(group).second <= line_s;
      })) << bits;
    }
  }
  EXPECT_THAT(best_groups(islands, 10), SizeIs(0));
  // Of those that are alike, one group.
  EXPECT_THAT(best_groups({{0, 1, 1}, {1, 1, 1}, {2, 1, 1}}, 2), ElementsAre(ElementsAre(0, 1)));
}

TEST(PlanMemory, EachMethodsCopies) {
  const double one = 4e6;  // Bytes of a million parameters.
  const auto of = [](const char* method, const char* codec, const char* device) {
    const method::TrainOptions train{.device = device};
    return with_state(method_memory(1e6, options(method, codec), 2, train), {.params = 1e6}, train,
                      1);
  };
  EXPECT_DOUBLE_EQ(of("single", "fp32", "cuda").device, 4 * one);
  EXPECT_DOUBLE_EQ(of("data_parallel", "bf16", "cuda").device, 4 * one);
  // The outer gradient, and the global copy that it is made from.
  EXPECT_DOUBLE_EQ(of("diloco", "bf16", "cuda").device, 6 * one);
  EXPECT_DOUBLE_EQ(of("streaming_diloco", "e3m0", "cuda").device, 6 * one);
  const PlannedMemory cpu = of("diloco", "bf16", "cpu");
  const PlannedMemory cuda = of("diloco", "bf16", "cuda");
  EXPECT_EQ(cpu.host, 0);
  // There the global copy is not needed twice.
  EXPECT_DOUBLE_EQ(cpu.device, cuda.device + cuda.host - one);
  EXPECT_DOUBLE_EQ(cuda.exchange, one + 2 * one / 2);  // The mean, two encodings of half the size.
  EXPECT_DOUBLE_EQ(cuda.checkpoint, 5 * one);
}

TEST(PlanLoss, IsTheLawsWhereTheirRunsWere) {
  const PlanLoss loss(std::nullopt);
  const double n = 558'760'000;
  for (const double replicas : {0.0, 1.0, 2.0, 4.0}) {
    const laws::Prediction law = laws::predict_published({.params = n, .replicas = replicas});
    const PlannedLoss planned = loss.predict(n, replicas, 20 * n, 30);
    EXPECT_NEAR(planned.loss.value, law.loss.value, 1e-12);
    EXPECT_NEAR(planned.loss.low, law.loss.low, 1e-12);
    EXPECT_NEAR(planned.loss.high, law.loss.high, 1e-12);
    EXPECT_EQ(planned.extrapolation, "");
  }
}

// Streaming DiLoCo, table 7: 1B on Dolma, 25, 100 and 250 billion tokens; tables 5 and 6: H 30,
// 100.
TEST(PlanLoss, OvertrainingAndLongPeriodsAreNearWhatWasPublished) {
  const PlanLoss loss(std::nullopt);
  const double n = 1e9;
  const auto ratio = [&](double replicas, double times) {
    return loss.value(n, replicas, 20 * n * times, 30) / loss.value(n, replicas, 20 * n, 30);
  };
  EXPECT_NEAR(ratio(0, 4), 2.52 / 2.67, 0.01);
  EXPECT_NEAR(ratio(0, 10), 2.45 / 2.67, 0.02);
  EXPECT_NEAR(ratio(2, 4), 2.51 / 2.66, 0.01);
  EXPECT_NEAR(ratio(2, 10), 2.45 / 2.66, 0.025);
  const auto longer = [&](double replicas) {
    return loss.value(n, replicas, 20 * n, 100) / loss.value(n, replicas, 20 * n, 30);
  };
  EXPECT_NEAR(longer(2), 2.50 / 2.48, 0.003);
  EXPECT_NEAR(longer(4), 2.53 / 2.50, 0.003);
  const PlannedLoss planned = loss.predict(n, 2, 80 * n, 100);
  EXPECT_LT(planned.loss.low, planned.loss.value);
  EXPECT_GT(planned.loss.high, loss.value(n, 2, 20 * n, 30) * 0.999);
  EXPECT_THAT(planned.extrapolation, HasSubstr("80 tokens a parameter"));
  EXPECT_THAT(planned.extrapolation, HasSubstr("100 steps between syncs"));
}

TEST(PlanLoss, NobodyKnowsBeyondTenTimesTheTokens) {
  const PlanLoss loss(std::nullopt);
  const double n = 1e8;
  const double most = loss.value(n, 0, 200 * n, 30);
  EXPECT_LT(most, loss.value(n, 0, 190 * n, 30));
  for (const double tokens : {201 * n, 1e12, 1e18}) {
    EXPECT_EQ(loss.value(n, 0, tokens, 30), most) << tokens;
    const PlannedLoss planned = loss.predict(n, 0, tokens, 30);
    EXPECT_EQ(planned.loss.value, most);
    EXPECT_LE(planned.loss.low, most);
    EXPECT_GE(planned.loss.high, most);
  }
  EXPECT_THAT(loss.predict(n, 0, 1e12, 30).extrapolation,
              HasSubstr("nothing is known beyond 10 times as many"));
  EXPECT_THAT(loss.predict(n, 0, 200 * n, 30).extrapolation, Not(HasSubstr("nothing is known")));
}

TEST(PlanLoss, SmallModelsGetNoLargerRateThanWasTried) {
  const PlanLoss loss(std::nullopt);
  const double tried = loss.settings(35'258'368, 0).inner_lr.value;
  EXPECT_NEAR(loss.settings(1e6, 0).inner_lr.value, tried, 1e-3 * tried);
  EXPECT_LT(loss.settings(1e9, 0).inner_lr.value, tried);
}

TEST(PlanLoss, OwnRunsSayTheirTokensAndPeriods) {
  std::vector<laws::Run> runs;
  for (const double n : {1e6, 2e6, 4e6, 8e6}) {
    for (const double m : {1.0, 2.0}) {
      laws::Run run{.params = n, .replicas = m, .loss = 20 * std::pow(n, -0.1) * std::pow(m, 0.01)};
      run.tokens = 40 * n;
      run.sync_every = 50;
      runs.push_back(run);
    }
  }
  const PlanLoss loss(runs);
  EXPECT_NEAR(loss.tokens_per_param(), 40, 1e-9);
  EXPECT_NEAR(loss.sync_every(), 50, 1e-9);
  EXPECT_NEAR(loss.value(3e6, 2, 120e6, 50), 20 * std::pow(3e6, -0.1) * std::pow(2, 0.01), 1e-9);
  EXPECT_FALSE(loss.has_law(0));
  EXPECT_TRUE(loss.has_law(4));
  EXPECT_THAT(loss.notes(), SizeIs(3));  // No sweeps: published settings.
}

}  // namespace
}  // namespace atl::plan
