#pragma once
// For tests of methods in elastic pace: a member whose steps are by hand, in a ScriptedRun.
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "atoll/model/parameters.h"
#include "atoll/sync/strategy.h"
#include "atoll/testing/scripted_run.h"

namespace atl::sync {

/// Of four parameters, each 100 at first. Runs end at step 100.
template <typename Method>
struct ScriptedMember {
  static constexpr int64_t kSize = 4;
  static constexpr int64_t kTokens = 10;  // Of a step.

  explicit ScriptedMember(const method::SyncOptions& options)
      : strategy(options,
                 {.values_P = live_P,
                  .gradients_P = at::full({kSize}, 0.0F),
                  .tokens_per_step = kTokens,
                  .pace = {.name = "elastic", .last_step = 100},
                  .specs = specs},
                 run, clock) {}

  /// A step that lowers each parameter by 1.
  void train(int64_t steps = 1) {
    for (int64_t i = 0; i < steps; ++i) {
      step = strategy.catch_up(step).value().step;
      live_P.sub_(1);
      step = strategy.step_after(step);
      ASSERT_TRUE(strategy.after_step(step));
    }
  }
  float live(int64_t parameter = 0) const { return live_P[parameter].template item<float>(); }
  float global(int64_t parameter = 0) const {
    return strategy.global_parameters()[parameter].template item<float>();
  }

  std::vector<weights::ParameterSpec> specs = {{.name = "w", .shape = {kSize}, .size = kSize}};
  at::Tensor live_P = at::full({kSize}, 100.0F);
  ScriptedRun run;
  SystemClock clock;
  Method strategy;
  int64_t step = 0;
};

}  // namespace atl::sync
