#include "atoll/sync/streaming_diloco.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/testing_torch/toy_run.h"

namespace atl::sync {
namespace {

method::SyncOptions streaming(int64_t sync_every, int64_t fragments, int64_t delay, double alpha,
                              const std::string& pattern = "strided") {
  return {.method = "streaming_diloco",
          .sync_every = sync_every,
          .num_fragments = fragments,
          .fragment_pattern = pattern,
          .fragment_sync_delay = delay,
          .fragment_update_alpha = alpha,
          .codec = "fp32"};
}

TEST(StreamingDiLoCoTest, OneFragmentWithoutDelayIsDiLoCoBitForBit) {
  for (const int64_t steps : {12, 14}) {  // The second ends inside a period.
    const auto plain = toy::train_together({.method = "diloco", .sync_every = 4}, 3, steps);
    const auto streamed = toy::train_together(streaming(4, 1, 0, 0), 3, steps);
    for (size_t rank = 0; rank < 3; ++rank) {
      for (size_t t = 0; t < plain[rank].live_TP.size(); ++t) {
        EXPECT_TRUE(streamed[rank].live_TP[t].equal(plain[rank].live_TP[t])) << t;
        EXPECT_TRUE(streamed[rank].global_TP[t].equal(plain[rank].global_TP[t])) << t;
      }
      EXPECT_EQ(streamed[rank].stats.digest, plain[rank].stats.digest);
      EXPECT_EQ(streamed[rank].stats.rounds, plain[rank].stats.rounds);
    }
  }
}

TEST(StreamingDiLoCoTest, AlphaOneIsNoCommunication) {
  const auto streamed = toy::train_together(streaming(4, 3, 2, 1), 2, 17);
  for (int rank = 0; rank < 2; ++rank) {
    collective::Alone alone;
    const auto local = toy::train({.method = "single"}, alone, rank, 17);
    EXPECT_TRUE(streamed[static_cast<size_t>(rank)].live_TP.back().equal(local.live_TP.back()));
  }
}

TEST(StreamingDiLoCoTest, AllReplicasEndWithTheSameModel) {
  for (const char* pattern : {"strided", "sequential", "balanced"}) {
    const auto out = toy::train_together(streaming(6, 4, 3, 0, pattern), 3, 20);
    for (const auto& outcome : out) {
      EXPECT_TRUE(outcome.live_TP.back().equal(out[0].live_TP.back()));
      EXPECT_TRUE(outcome.live_TP.back().equal(outcome.global_TP.back()));
    }
  }
}

/// Algorithm 2 in FP64, written from the paper, one element at a time and all replicas in one loop.
struct Reference {
  std::vector<at::Tensor> live_MP;
  at::Tensor global_P;
};

Reference run_algorithm_2(const method::SyncOptions& options, int replicas, int64_t steps) {
  const auto fragments =
      method::make_fragments(toy::specs(), options.fragment_pattern, options.num_fragments);
  const auto size = static_cast<size_t>(toy::size());
  std::vector<int64_t> fragment_of(size);
  for (size_t p = 0; p < fragments.size(); ++p) {
    for (const method::Range& range : fragments[p].ranges) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        fragment_of[static_cast<size_t>(i)] = static_cast<int64_t>(p);
      }
    }
  }
  const at::Tensor start = toy::start_P();
  const auto at = [](const at::Tensor& x, size_t i) {
    return static_cast<double>(x.const_data_ptr<float>()[i]);
  };
  const int64_t h = options.sync_every;
  const int64_t tau = options.fragment_sync_delay;
  const double alpha = options.fragment_update_alpha;
  std::vector<at::Tensor> live(static_cast<size_t>(replicas));
  for (auto& x : live) x = start.clone();
  at::Tensor global = start.clone();
  std::vector<at::Tensor> targets;
  for (int m = 0; m < replicas; ++m) targets.push_back(toy::target_P(m));
  for (size_t i = 0; i < size; ++i) {
    std::vector<double> theta(static_cast<size_t>(replicas), at(start, i));
    double g = at(start, i);
    double buf = 0;
    double delta = 0;
    const int64_t offset = fragment_of[i] * (h / options.num_fragments);
    const auto send = [&] {
      delta = 0;
      for (const double x : theta) delta += (g - x) / replicas;
    };
    const auto apply = [&] {
      buf = options.outer_momentum * buf + delta;
      g -= method::outer_lr(options) * (delta + options.outer_momentum * buf);
      for (double& x : theta) x = alpha * x + (1 - alpha) * g;
    };
    bool in_flight = false;
    for (int64_t t = 1; t <= steps; ++t) {
      for (size_t m = 0; m < theta.size(); ++m) {
        theta[m] -= toy::kLr * (theta[m] - at(targets[m], i));
      }
      const bool sends = t < steps && (t - offset) % h == 0 && t - offset >= h;
      if (sends) send();
      in_flight = in_flight || sends;
      const bool arrives = t < steps && (t - offset - tau) % h == 0;
      if (in_flight && (arrives || t == steps)) {
        apply();
        in_flight = false;
      }
    }
    send();  // The end of the run.
    apply();
    for (size_t m = 0; m < theta.size(); ++m) {
      live[m].mutable_data_ptr<float>()[i] = static_cast<float>(theta[m]);
    }
    global.mutable_data_ptr<float>()[i] = static_cast<float>(g);
  }
  return {live, global};
}

TEST(StreamingDiLoCoTest, FollowsAlgorithm2) {
  for (const int64_t tau : {0, 1, 3, 5}) {  // 5: several fragments are in flight at once.
    for (const double alpha : {0.0, 0.5, 0.9}) {
      for (const char* pattern : {"strided", "balanced"}) {
        const method::SyncOptions options = streaming(6, 3, tau, alpha, pattern);
        const auto out = toy::train_together(options, 2, 40);
        const Reference reference = run_algorithm_2(options, 2, 40);
        EXPECT_TRUE(at::allclose(out[0].global_TP.back(), reference.global_P, 1e-5, 1e-4))
            << "tau " << tau << " alpha " << alpha << ' ' << pattern;
        for (size_t m = 0; m < 2; ++m) {
          EXPECT_TRUE(at::allclose(out[m].live_TP.back(), reference.live_MP[m], 1e-5, 1e-4));
        }
      }
    }
  }
}

TEST(StreamingDiLoCoTest, ResumesWithFragmentsInFlight) {
  toy::expect_exact_resume(streaming(6, 3, 4, 0.5), 30);
  toy::expect_exact_resume(streaming(6, 3, 4, 0.5), 30, /*abstains_at=*/12);
}

}  // namespace
}  // namespace atl::sync
