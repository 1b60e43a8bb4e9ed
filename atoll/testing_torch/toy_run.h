#pragma once
// For tests of strategies: replicas that are threads train a toy problem. Replica i minimises
// |theta - target_i|^2 / 2 with plain SGD; every step can be computed by hand.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "atoll/sync/strategy.h"
#include "atoll/testing/thread_group.h"

namespace atl::sync::toy {

constexpr double kLr = 0.1;
constexpr int64_t kLayers = 4;

/// An embedding of 3 elements, four layers of one neuron with 2 + l weights, a norm of 2.
inline std::vector<weights::ParameterSpec> specs() {
  std::vector<weights::ParameterSpec> out;
  const auto add = [&](int64_t size, int64_t layer) {
    const int64_t offset = out.empty() ? 0 : out.back().offset + out.back().size;
    const std::vector<int64_t> shape =
        layer < 0 ? std::vector{size} : std::vector{int64_t{1}, size};
    out.push_back({"t" + std::to_string(out.size()), shape, offset, size, layer});
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

/// Where a replica's tensors lie; all but the first as in Replica.
struct Place {
  at::Device device = at::kCPU;
  bool as_if_on_device = false;
  std::filesystem::path outer_folder = {};
};

struct Outcome {                      // On the CPU.
  std::vector<at::Tensor> live_TP;    // After each step; 0: the start.
  std::vector<at::Tensor> global_TP;  // The same of the published model.
  SyncStats stats;
};

/// A replica of the toy problem in a run of `last_step` steps, and its strategy.
struct Trainee {
  Trainee(const method::SyncOptions& options, collective::Averager& averager, int64_t last_step,
          int number = 0, Place place = {})
      : rank(number),
        values_P(start_P().to(place.device)),
        gradients_P(at::zeros_like(values_P)),
        strategy(make_strategy(options,
                               {.values_P = values_P,
                                .gradients_P = gradients_P,
                                .tokens_per_step = 8,
                                .pace = {.last_step = last_step},
                                .specs = layout,
                                .rank = number,
                                .outer_folder = place.outer_folder,
                                .as_if_on_device = place.as_if_on_device},
                               averager, clock)) {}

  /// One step, as the training loop makes it; with `abstains` its part cannot be used.
  void train(int64_t step, bool abstains = false) const {
    gradients_P.copy_(values_P.sub(target_P(rank).to(values_P.device())));
    EXPECT_TRUE(strategy->reduce_gradients(step));
    values_P.sub_(gradients_P, kLr);
    if (abstains) strategy->abstain();
    EXPECT_TRUE(strategy->after_step(step));
  }

  int rank;
  SystemClock clock;
  std::vector<weights::ParameterSpec> layout = specs();
  at::Tensor values_P;
  at::Tensor gradients_P;
  std::unique_ptr<Strategy> strategy;
};

/// work(rank, averager) of all replicas at once, each in a thread; what they return, by rank.
template <typename Work>
auto run_together(int replicas, const Work& work) {
  collective::ThreadGroup group(replicas);
  std::vector<decltype(work(0, *group.member(0)))> out(static_cast<size_t>(replicas));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < replicas; ++rank) {
    threads.emplace_back([&, rank] {
      const auto averager = group.member(rank);
      out[static_cast<size_t>(rank)] = work(rank, *averager);
    });
  }
  threads.clear();
  return out;
}

/// Trains `steps` steps; the run is `last_step` long (default: `steps`).
inline Outcome train(const method::SyncOptions& options, collective::Averager& averager, int rank,
                     int64_t steps, int64_t last_step = 0, Place place = {}) {
  const Trainee trainee(options, averager, last_step == 0 ? steps : last_step, rank, place);
  const auto& strategy = trainee.strategy;
  const auto copy = [](const at::Tensor& x_P) { return x_P.cpu().clone(); };
  Outcome out{.live_TP = {copy(trainee.values_P)},
              .global_TP = {copy(strategy->global_parameters())}};
  for (int64_t step = 1; step <= steps; ++step) {
    trainee.train(step);
    out.live_TP.push_back(copy(trainee.values_P));
    out.global_TP.push_back(copy(strategy->global_parameters()));
  }
  out.stats = strategy->stats();
  return out;
}

/// All replicas at once; replica i has the target of `target_of(i)`.
inline std::vector<Outcome> train_together(
    const method::SyncOptions& options, int replicas, int64_t steps,
    const std::function<int(int)>& target_of = [](int rank) { return rank; }) {
  return run_together(replicas, [&](int rank, collective::Averager& averager) {
    return train(options, averager, target_of(rank), steps);
  });
}

/// What a checkpoint holds of a replica.
struct Saved {
  at::Tensor live_P;
  at::Tensor global_P;
  std::vector<at::Tensor> state;
  bool abstains = false;
  std::vector<int64_t> abstained_rounds;
};

/// Steps `begin` + 1 to `end` of a run of `last_step`; what is on its way then is drained. At step
/// `abstains_at` the second replica's part cannot be used.
inline Saved advance(const method::SyncOptions& options, collective::Averager& averager, int rank,
                     const Saved* from, int64_t begin, int64_t end, int64_t last_step,
                     int64_t abstains_at, const Place& place) {
  const Trainee trainee(options, averager, last_step, rank, place);
  const auto& strategy = trainee.strategy;
  if (from != nullptr) {
    strategy->restore_global(from->global_P);
    trainee.values_P.copy_(from->live_P);
    const auto state = strategy->state();
    for (size_t i = 0; i < state.size(); ++i) state[i].second.copy_(from->state[i]);
    strategy->abstain_again(from->abstained_rounds);
    strategy->resumed(begin);
    if (from->abstains) strategy->abstain();
  }
  for (int64_t step = begin + 1; step <= end; ++step) {
    trainee.train(step, rank == 1 && step == abstains_at);
  }
  Saved saved{.live_P = trainee.values_P.clone(),
              .global_P = strategy->global_parameters().clone(),
              .abstains = strategy->abstains(),
              .abstained_rounds = strategy->abstained_rounds()};
  for (const auto& [name, tensor] : strategy->state()) saved.state.push_back(tensor.clone());
  EXPECT_TRUE(strategy->drain());
  return saved;
}

inline std::vector<Saved> advance_together(const method::SyncOptions& options,
                                           const std::vector<Saved>& from, int64_t begin,
                                           int64_t end, int64_t last_step, int64_t abstains_at,
                                           const Place& place = {}) {
  return run_together(2, [&](int rank, collective::Averager& averager) {
    const Saved* mine = from.empty() ? nullptr : &from[static_cast<size_t>(rank)];
    return advance(options, averager, rank, mine, begin, end, last_step, abstains_at, place);
  });
}

/// Two replicas that stop after any of their steps and go on from what a checkpoint holds end as
/// if they had never stopped, to the bit.
inline void expect_exact_resume(const method::SyncOptions& options, int64_t last_step,
                                int64_t abstains_at = 0, const Place& place = {}) {
  const auto advance_all = [&](const std::vector<Saved>& from, int64_t begin, int64_t end) {
    return advance_together(options, from, begin, end, last_step, abstains_at, place);
  };
  const auto expected = advance_all({}, 0, last_step);
  for (int64_t stop = 1; stop < last_step; ++stop) {
    const auto saved = advance_all({}, 0, stop);
    const auto out = advance_all(saved, stop, last_step);
    for (size_t rank = 0; rank < out.size(); ++rank) {
      EXPECT_TRUE(out[rank].live_P.equal(expected[rank].live_P))
          << options.method << " stopped after step " << stop << ", replica " << rank;
      EXPECT_TRUE(out[rank].global_P.equal(expected[rank].global_P)) << options.method;
    }
  }
}

}  // namespace atl::sync::toy
