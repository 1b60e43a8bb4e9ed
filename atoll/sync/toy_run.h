#pragma once
// For tests of strategies: replicas that are threads train a toy problem. Replica i minimises
// |theta - target_i|^2 / 2 with plain SGD; every step can be computed by hand.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "atoll/collective/thread_group.h"
#include "atoll/sync/strategy.h"

namespace atl::sync::toy {

constexpr double kLr = 0.1;
constexpr int64_t kLayers = 4;

/// An embedding of 3 elements, four layers of 2 + l, a norm of 2.
inline std::vector<model::ParameterSpec> specs() {
  std::vector<model::ParameterSpec> out;
  const auto add = [&](int64_t size, int64_t layer) {
    const int64_t offset = out.empty() ? 0 : out.back().offset + out.back().size;
    out.push_back({"t" + std::to_string(out.size()), {size}, offset, size, layer});
  };
  add(3, -1);
  for (int64_t layer = 0; layer < kLayers; ++layer) add(2 + layer, layer);
  add(2, -1);
  return out;
}

inline int64_t size() { return specs().back().offset + specs().back().size; }
inline at::Tensor start_P() { return at::arange(size(), at::kFloat).div(7); }
/// Without symmetries, whose ties FP32 and FP64 break differently.
inline at::Tensor target_P(int rank) {
  const at::Tensor index_P = at::arange(size(), at::kFloat);
  return index_P.mul(rank % 2 == 0 ? 1 : -2)
      .add(2.0 + 3.0 * rank)
      .add(index_P.square().mul(1.7 + rank).sin());
}

struct Outcome {
  std::vector<at::Tensor> live_TP;    // After each step; 0: the start.
  std::vector<at::Tensor> global_TP;  // The same of the published model.
  SyncStats stats;
};

/// Trains `steps` steps; the run is `last_step` long (default: `steps`).
inline Outcome train(const SyncOptions& options, collective::Averager& averager, int rank,
                     int64_t steps, int64_t last_step = 0) {
  const SystemClock clock;
  const auto layout = specs();
  const at::Tensor values_P = start_P();
  const at::Tensor gradients_P = at::zeros_like(values_P);
  auto strategy = make_strategy(options,
                                {.values_P = values_P,
                                 .gradients_P = gradients_P,
                                 .tokens_per_step = 8,
                                 .last_step = last_step == 0 ? steps : last_step,
                                 .specs = layout},
                                averager, clock);
  Outcome out{.live_TP = {values_P.clone()}, .global_TP = {strategy->global_parameters().clone()}};
  for (int64_t step = 1; step <= steps; ++step) {
    gradients_P.copy_(values_P.sub(target_P(rank)));
    EXPECT_TRUE(strategy->reduce_gradients(step));
    values_P.sub_(gradients_P, kLr);
    EXPECT_TRUE(strategy->after_step(step));
    out.live_TP.push_back(values_P.clone());
    out.global_TP.push_back(strategy->global_parameters().clone());
  }
  out.stats = strategy->stats();
  return out;
}

/// All replicas at once; replica i has the target of `target_of(i)`.
inline std::vector<Outcome> train_together(
    const SyncOptions& options, int replicas, int64_t steps,
    const std::function<int(int)>& target_of = [](int rank) { return rank; }) {
  collective::ThreadGroup group(replicas);
  std::vector<Outcome> outcomes(static_cast<size_t>(replicas));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < replicas; ++rank) {
    threads.emplace_back([&, rank] {
      const auto averager = group.member(rank);
      outcomes[static_cast<size_t>(rank)] = train(options, *averager, target_of(rank), steps);
    });
  }
  threads.clear();
  return outcomes;
}

/// A run that stops after any of its steps, and one that goes on from what a checkpoint holds, end
/// as one that never stopped, to the bit.
inline void expect_exact_resume(const SyncOptions& options, int64_t last_step) {
  const SystemClock clock;
  const auto layout = specs();
  collective::Alone whole;
  const Outcome expected = train(options, whole, 0, last_step);
  const at::Tensor gradients_P = at::zeros_like(start_P());
  const auto make = [&](const at::Tensor& values_P, collective::Averager& averager) {
    return make_strategy(options,
                         {.values_P = values_P,
                          .gradients_P = gradients_P,
                          .tokens_per_step = 8,
                          .last_step = last_step,
                          .specs = layout},
                         averager, clock);
  };
  const auto advance = [&](Strategy& strategy, const at::Tensor& values_P, int64_t step) {
    gradients_P.copy_(values_P.sub(target_P(0)));
    ASSERT_TRUE(strategy.reduce_gradients(step));
    values_P.sub_(gradients_P, kLr);
    ASSERT_TRUE(strategy.after_step(step));
  };
  for (int64_t stop = 1; stop < last_step; ++stop) {
    collective::Alone first_group;
    collective::Alone second_group;
    const at::Tensor first_P = start_P();
    const auto first = make(first_P, first_group);
    for (int64_t step = 1; step <= stop; ++step) advance(*first, first_P, step);
    const at::Tensor second_P = start_P();
    const auto second = make(second_P, second_group);
    second->restore_global(first->global_parameters());
    second_P.copy_(first_P);
    const auto saved = first->state();
    const auto restored = second->state();
    for (size_t i = 0; i < saved.size(); ++i) restored[i].second.copy_(saved[i].second);
    second->resumed(stop);
    for (int64_t step = stop + 1; step <= last_step; ++step) advance(*second, second_P, step);
    EXPECT_TRUE(second_P.equal(expected.live_TP.back()))
        << options.method << " stopped after step " << stop;
    EXPECT_TRUE(second->global_parameters().equal(expected.global_TP.back())) << options.method;
  }
}

}  // namespace atl::sync::toy
