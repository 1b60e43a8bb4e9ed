// Replicas on a device and on the CPU: the same bits. The way of a device is taken on the CPU too
// (Replica::as_if_on_device); where there is a GPU, one replica trains there.
#include <ATen/Context.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "atoll/model/spilled_tensor.h"
#include "atoll/sync/strategy.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/testing_torch/stand_in_device.h"
#include "atoll/testing_torch/toy_run.h"

namespace atl::sync {
namespace {

constexpr int64_t kSteps = 23;  // Ends inside a period.

std::vector<method::SyncOptions> some_methods() {
  return {{.method = "diloco", .sync_every = 4},
          {.method = "diloco", .sync_every = 4, .outer_optimizer = "adam", .layer_metrics = true},
          {.method = "diloco", .sync_every = 4, .outer_mean = "radial"},
          {.method = "diloco", .sync_every = 4, .sign_pruning = 0.5},
          {.method = "diloco", .sync_every = 4, .outer_dropout = 0.5},
          {.method = "streaming_diloco",
           .sync_every = 6,
           .num_fragments = 3,
           .fragment_pattern = "strided",
           .fragment_sync_delay = 4,
           .fragment_update_alpha = 0.5},
          {.method = "streaming_diloco",
           .sync_every = 6,
           .num_fragments = 2,
           .fragment_pattern = "balanced",
           .fragment_sync_delay = 1,
           .fragment_update_alpha = 0},
          {.method = "diloco", .sync_every = 4, .outer_device = "train"},
          {.method = "streaming_diloco",
           .sync_every = 6,
           .num_fragments = 3,
           .fragment_sync_delay = 2,
           .fragment_update_alpha = 0.5,
           .outer_device = "train"},
          {.method = "delayed_diloco", .sync_every = 4},
          {.method = "eager_diloco", .sync_every = 4},
          {.method = "data_parallel"},
          {.method = "sparse_loco", .sync_every = 4},
          {.method = "cocktail_sgd", .fragment_sync_delay = 1},
          {.method = "demo"}};
}

/// The first replica on the CPU, the second at `place`.
std::vector<toy::Outcome> train_at(const method::SyncOptions& options, toy::Place place) {
  return toy::run_together(2, [&](int rank, collective::Averager& averager) {
    return toy::train(options, averager, rank, kSteps, kSteps, rank == 1 ? place : toy::Place{});
  });
}

/// Of both replicas, after each step.
void expect_same_bits(const std::vector<toy::Outcome>& ours,
                      const std::vector<toy::Outcome>& expected) {
  for (size_t rank = 0; rank < 2; ++rank) {
    for (size_t t = 0; t <= kSteps; ++t) {
      ASSERT_TRUE(ours[rank].live_TP[t].equal(expected[rank].live_TP[t])) << t;
      ASSERT_TRUE(ours[rank].global_TP[t].equal(expected[rank].global_TP[t])) << t;
    }
    EXPECT_EQ(ours[rank].stats.digest, expected[rank].stats.digest);
  }
}

TEST(DeviceStrategyTest, TheWayOfADeviceChangesNoBit) {
  for (method::SyncOptions options : some_methods()) {
    for (const char* codec : {"fp32", "bf16", "fp16", "int8", "int4", "e3m0", "sign3"}) {
      if (options.outer_mean == "radial" && std::string(codec) != "fp32") continue;
      options.codec = codec;
      SCOPED_TRACE(fmt::format("{} with {}", options.method, codec));
      expect_same_bits(train_at(options, {.as_if_on_device = true}), train_at(options, {}));
    }
  }
}

TEST(DeviceStrategyTest, OuterStateOnADiskChangesNoBit) {
  const TestFolder folder;
  for (method::SyncOptions options : some_methods()) {
    options.codec = options.outer_mean == "radial" ? "fp32" : "int8";
    SCOPED_TRACE(options.method);
    expect_same_bits(train_at(options, {.outer_folder = folder}), train_at(options, {}));
    const auto are_there = toy::run_together(2, [&](int rank, collective::Averager& averager) {
      const toy::Trainee trainee(options, averager, kSteps, rank, {.outer_folder = folder});
      return static_cast<int>(model::is_spilled(trainee.strategy->global_parameters()));
    });
    EXPECT_EQ(are_there[0], method::method_of(options).uses("outer_lr") ? 1 : 0);
  }
}

TEST(DeviceStrategyTest, ResumesToTheBit) {
  const TestFolder folder;
  for (method::SyncOptions options : some_methods()) {
    options.codec = options.outer_mean == "radial" ? "fp32" : "int8";
    toy::expect_exact_resume(options, 14, /*abstains_at=*/6, {.as_if_on_device = true});
    if (!method::method_of(options).uses("outer_lr")) continue;
    toy::expect_exact_resume(options, 14, /*abstains_at=*/6, {.outer_folder = folder});
  }
}

/// The inner steps of a GPU may differ in the last bit from a CPU's, the published model may not:
/// the digests of every round are compared.
void expect_the_same_model_as_on_the_cpu(at::Device device) {
  for (method::SyncOptions options : some_methods()) {
    // Their digests are those of the inner steps too.
    if (device.is_cuda() && method::method_of(options).reduces_gradients) continue;
    for (const char* codec : {"fp32", "bf16", "fp16", "int8", "int4", "e3m0", "sign3"}) {
      if (options.outer_mean == "radial" && std::string(codec) != "fp32") continue;
      options.codec = codec;
      SCOPED_TRACE(fmt::format("{} with {}", options.method, codec));
      const auto out = train_at(options, {.device = device});
      for (size_t t = 0; t <= kSteps; ++t) {
        ASSERT_TRUE(out[0].global_TP[t].equal(out[1].global_TP[t])) << t;
      }
      EXPECT_EQ(out[0].stats.rounds, out[1].stats.rounds);
    }
  }
}

TEST(DeviceStrategyTest, AReplicaWithoutTheHostsMemoryAndOneOnTheCpuPublishTheSameModel) {
  expect_the_same_model_as_on_the_cpu(model::stand_in::a_device());
}

}  // namespace
}  // namespace atl::sync
