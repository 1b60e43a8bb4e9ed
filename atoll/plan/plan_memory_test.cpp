// The training state and its passes: what each train.shard and train.precision leaves a process.
#include "atoll/plan/plan_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "atoll/plan/training_memory.h"
#include "atoll/weights/presets.h"

namespace atl::plan {
namespace {

/// Bytes of a model of one parameter, none of them gathered.
double bytes(const std::string& shard, int64_t num_processes, const std::string& precision = "fp32",
             const std::string& device = "cuda") {
  const method::TrainOptions train{.device = device, .precision = precision, .shard = shard};
  return with_state({}, {.params = 1}, train, num_processes).device;
}

TEST(PlanMemory, Zero1SharesMoments) {
  EXPECT_DOUBLE_EQ(bytes("none", 1), 16);
  EXPECT_DOUBLE_EQ(bytes("none", 8), 16);
  EXPECT_DOUBLE_EQ(bytes("none", 8, "bf16"), 18);
  EXPECT_DOUBLE_EQ(bytes("zero1", 1), 16);
  EXPECT_DOUBLE_EQ(bytes("zero1", 4), 4 + 4 + 8.0 / 4);
  EXPECT_DOUBLE_EQ(bytes("zero1", 8, "bf16"), 4 + 2 + 4 + 1);
}

TEST(PlanMemory, AllMomentsAreWithProcess0FromACheckpointOn) {
  const method::TrainOptions gpu{.device = "cuda", .shard = "zero1"};
  const PlannedMemory memory = with_state({}, {.params = 1}, gpu, 4);
  EXPECT_DOUBLE_EQ(memory.checkpoint, 8);
  EXPECT_DOUBLE_EQ(memory.host, 8);
  // Where the host is the device it has gained nothing; the others have.
  EXPECT_DOUBLE_EQ(bytes("zero1", 4, "fp32", "cpu"), 4 + 4 + 8.0 / 4 + 8);
}

TEST(PlanMemory, Zero3LeavesProcess0AsMuchAsTheOthersOrItsValues) {
  EXPECT_DOUBLE_EQ(bytes("zero3", 1, "fp32", "cpu"), 16);
  for (const int64_t n : {2, 3, 4, 5, 8, 64}) {
    const double of_others = 16 / static_cast<double>(n - 1);
    const double part = std::max(0.0, (of_others - 4) / (12 + of_others));
    const double leader = bytes("zero3", n, "fp32", "cpu");
    EXPECT_NEAR(leader, 4 + 12 * part, 1e-12) << n;
    EXPECT_GE(leader, of_others * (1 - part) - 1e-12) << n;
    EXPECT_NEAR(leader, part > 0 ? of_others * (1 - part) : 4, 1e-12) << n;
  }
}

TEST(PlanMemory, Zero3LeavesWhatNoStepNeedsToTheDisk) {
  const method::TrainOptions train{.device = "cpu", .shard = "zero3"};
  const method::SyncOptions sync{.method = "diloco"};
  const PlannedMemory kept = method_memory(1, sync, 2, train);
  EXPECT_DOUBLE_EQ(kept.outer, 4 * 5);
  const PlannedMemory memory = with_state(kept, {.params = 1}, train, 5);
  EXPECT_DOUBLE_EQ(memory.outer, 0);
  EXPECT_DOUBLE_EQ(memory.checkpoint, 0);
  EXPECT_DOUBLE_EQ(memory.device, bytes("zero3", 5, "fp32", "cpu") + kept.exchange);
  EXPECT_DOUBLE_EQ(with_state(kept, {.params = 1}, train, 1).outer, 4 * 5) << "one process alone";
}

TEST(PlanMemory, Zero3GathersTwoLayersAndTheEmbedding) {
  const weights::ModelConfig model = weights::chinchilla(6, 512, 1000);
  const ModelSize size = size_of(model);
  const auto layers = [](int64_t count) {
    return static_cast<double>(weights::num_parameters(weights::chinchilla(count, 512, 1000)));
  };
  EXPECT_DOUBLE_EQ(size.params, layers(6));
  EXPECT_DOUBLE_EQ(size.gathered_params, layers(2));
  EXPECT_DOUBLE_EQ(size_of(weights::chinchilla(1, 512, 1000)).gathered_params, layers(1));
  method::TrainOptions train{.device = "cpu", .shard = "zero3"};
  EXPECT_DOUBLE_EQ(with_state({}, size, train, 8).device, 4 * layers(6) + 8 * layers(2));
  train.precision = "bf16";  // Only what is used is rounded.
  EXPECT_DOUBLE_EQ(with_state({}, size, train, 8).device, 4 * layers(6) + 10 * layers(2));
}

TEST(PlanMemory, TrainingReckonsAsPlansDo) {
  TrainingFit fit{.model = weights::chinchilla(6, 512, 1000),
                  .train = {.device = "cpu", .precision = "bf16", .shard = "zero3"},
                  .rows = 8,
                  .num_processes = 4};
  const PlannedMemory state = with_state({}, size_of(fit.model), fit.train, 4);
  EXPECT_DOUBLE_EQ(state_bytes(fit), state.device);
  const PassMemory pass = pass_memory(fit.model, fit.train);
  EXPECT_DOUBLE_EQ(pass_bytes(fit, 2), with_rows({}, pass, 2).device);
  method::TrainOptions whole = fit.train;
  whole.precision = "fp32";
  EXPECT_DOUBLE_EQ(pass_memory(fit.model, whole).row, 2 * pass.row);
  whole.activation_checkpointing = true;
  EXPECT_LT(pass_memory(fit.model, whole).row, pass.row);
}

TEST(PlanMemory, LogitsAreThoseOfOneSlice) {
  method::TrainOptions train{.sequence_length = 300, .device = "cpu"};
  const auto logits = [&](int64_t vocab, int64_t rows) {
    const PassMemory pass = pass_memory(weights::chinchilla(6, 512, vocab), train);
    return pass.bytes(rows) - pass.row * static_cast<double>(rows);
  };
  EXPECT_NEAR(logits(32768, 1), 4.0 * 300 * 32768, 1);
  EXPECT_NEAR(logits(32768, 2), 4.0 * 512 * 32768, 1);
  EXPECT_NEAR(logits(1024, 100), 4.0 * (2 << 20), 1);  // 8 MB.
  train.precision = "bf16";
  EXPECT_NEAR(logits(32768, 2), 6.0 * 512 * 32768, 1);
  train.teacher = "somewhere";
  EXPECT_NEAR(logits(32768, 2), 18.0 * 512 * 32768, 1);
  train.teacher.clear();
  train.device = "cuda";
  EXPECT_NEAR(logits(32768, 100), 10.0 * (64 << 20), 1);
  weights::ModelConfig capped = weights::chinchilla(6, 512, 32768);
  const double usual = pass_memory(capped, train).most_logits;
  capped.logits_softcap = 30;
  EXPECT_DOUBLE_EQ(pass_memory(capped, train).most_logits, usual * 3.5 / 2.5);
}

TEST(PlanMemory, TheMostRowsAreThoseThatFit) {
  const PassMemory pass{.row = 10, .row_logits = 3, .most_logits = 7};
  for (const double room : {5.0, 13.0, 25.9, 26.0, 36.9, 37.0, 47.0, 1000.0}) {
    const double rows = pass.rows_within(room);
    if (rows >= 1) {
      EXPECT_LE(pass.bytes(static_cast<int64_t>(rows)), room);
    }
    EXPECT_GT(pass.bytes(static_cast<int64_t>(std::max(rows, 0.0)) + 1), room);
  }
}

}  // namespace
}  // namespace atl::plan
