#include "atoll/plan/training_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::plan {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

TrainingFit fit_in(double memory_bytes) {
  return {.model = {.vocab_size = 8192,
                    .hidden_size = 512,
                    .intermediate_size = 1408,
                    .num_layers = 8,
                    .num_heads = 8,
                    .num_kv_heads = 8,
                    .max_positions = 512},
          .train = {.sequence_length = 512},
          .rows = 48,
          .memory_bytes = memory_bytes};
}

TEST(TrainingMemory, NamesTheMostRowsThatFitAndDivideTheShare) {
  TrainingFit fit = fit_in(0);
  // Room for 17 rows: 16 is the largest divisor of 48 below.
  fit.memory_bytes = (state_bytes(fit) + pass_bytes(fit, 17)) / 0.9 + 1;
  EXPECT_THAT(memory_advice(fit), HasSubstr("48 rows of 512 tokens at a time need about"));
  EXPECT_THAT(memory_advice(fit), HasSubstr("fewer would fit: --train.micro_batch_rows=16"));
  fit.train.micro_batch_rows = 24;
  EXPECT_THAT(memory_advice(fit), HasSubstr("24 rows of 512"));
  // The allocator knows better than what is reckoned.
  fit.memory_bytes = 1e12;
  EXPECT_THAT(memory_advice(fit, /*was_tried=*/true), HasSubstr("--train.micro_batch_rows=12"));
}

TEST(TrainingMemory, WhereNotOneRowFitsItNamesWhatMakesOneFit) {
  TrainingFit fit = fit_in(0);
  fit.memory_bytes = (state_bytes(fit) + 0.9 * pass_bytes(fit, 1)) / 0.9;
  EXPECT_THAT(memory_advice(fit), HasSubstr("this would fit: --train.activation_checkpointing=true "
                                            "--train.micro_batch_rows="));
  fit.memory_bytes = state_bytes(fit);
  EXPECT_THAT(memory_advice(fit), HasSubstr("choose a smaller model"));
  EXPECT_THAT(memory_advice(fit), Not(HasSubstr("would fit")));
}

TEST(TrainingMemory, ProcessesShareRowsAndWhereAskedForMoments) {
  TrainingFit fit = fit_in(1e9);
  fit.num_processes = 4;
  EXPECT_EQ(fit.rows_at_a_time(), 12);
  fit.train.micro_batch_rows = 12;  // Four of them.
  EXPECT_EQ(fit.rows_at_a_time(), 12);
  fit.train.micro_batch_rows = 24;
  EXPECT_EQ(fit.rows_at_a_time(), 6);
  const double whole = state_bytes(fit);
  fit.train.shard = "zero1";
  EXPECT_DOUBLE_EQ(state_bytes(fit), whole * (8 + 8.0 / 4) / 16);
}

TEST(TrainingMemory, ShardsMoreWhereThatIsWhatFits) {
  TrainingFit fit = fit_in(0);
  fit.num_processes = 4;
  fit.rows = 4;
  fit.train.activation_checkpointing = true;
  const auto room_of = [&](const char* shard) {
    TrainingFit other = fit;
    other.train.shard = shard;
    return (state_bytes(other) + pass_bytes(other, 1)) / 0.9 + 1;
  };
  const double room = room_of("zero3");
  ASSERT_LT(room, room_of("zero1"));
  fit.memory_bytes = room;
  EXPECT_THAT(memory_advice(fit), HasSubstr("this would fit: --train.shard=zero3 "
                                            "--train.micro_batch_rows=1"));
  fit.memory_bytes = room_of("zero1");
  EXPECT_THAT(memory_advice(fit), HasSubstr("this would fit: --train.shard=zero1 "));
  fit.memory_bytes = room;
  fit.train.device = "cuda";  // "zero3" is for CPUs.
  EXPECT_THAT(memory_advice(fit), Not(HasSubstr("zero3")));
  fit.train.device = "cpu";
  fit.train.optimizer = "muon";
  EXPECT_THAT(memory_advice(fit), Not(HasSubstr("train.shard")));
}

TEST(TrainingMemory, WhatTheMethodKeepsIsPartOfIt) {
  const TrainingFit plain = fit_in(1e9);
  const double params = size_of(plain.model).params;
  TrainingFit leader =
      fit_of_leader(plain.model, plain.train, {.method = "diloco"}, /*num_islands=*/2, 1);
  EXPECT_EQ(leader.rows, plain.train.batch_rows / 2);
  // Global copy and momentum, before and after a round, and the outer gradient.
  EXPECT_GE(state_bytes(leader), state_bytes(plain) + 5 * 4 * params);
  leader.memory_bytes = state_bytes(plain) + pass_bytes(leader, leader.rows_at_a_time());
  EXPECT_THAT([&] { require_memory(leader); },
              ThrowsMessage<InputError>(HasSubstr("moments and what the method keeps")));
  leader.kept = {};
  EXPECT_NO_THROW(require_memory(leader));
}

TEST(TrainingMemory, OnlyOneProcessOfAnIslandKeepsItForTheMethod) {
  const TrainingFit plain = fit_in(0);
  const TrainingFit alone = fit_of_leader(plain.model, plain.train, {.method = "diloco"}, 2, 4);
  TrainingFit four = alone;
  four.local_processes = 4;
  const double pass = pass_bytes(four, four.rows_at_a_time());
  four.memory_bytes = state_bytes(alone) + 3 * state_bytes(plain) + 4 * pass;
  EXPECT_NO_THROW(require_memory(four));
  four.memory_bytes = 4 * state_bytes(plain) + 2 * pass;
  EXPECT_THROW(require_memory(four), InputError);
}

TEST(TrainingMemory, WhoAgreesWithNobodyKeepsNothing) {
  TrainingFit fit = fit_of_leader(fit_in(0).model, fit_in(0).train, {.method = "single"}, 1, 1);
  fit.memory_bytes = 1e6;
  EXPECT_THAT(memory_advice(fit), HasSubstr("parameters, gradients and moments "));
}

TEST(TrainingMemory, LateMethodsKeepMore) {
  const TrainingFit plain = fit_in(0);
  const double one = 4 * size_of(plain.model).params;
  const auto kept = [&](const char* method) {
    return fit_of_leader(plain.model, plain.train, {.method = method}, 2, 1).kept.outer / one;
  };
  EXPECT_DOUBLE_EQ(kept("diloco"), 5);
  EXPECT_DOUBLE_EQ(kept("delayed_diloco"), 11);
  EXPECT_DOUBLE_EQ(kept("eager_diloco"), 12);
}

TEST(TrainingMemory, OuterOptimisersRememberWhatTheyNeed) {
  const TrainingFit plain = fit_in(0);
  const double one = 4 * size_of(plain.model).params;
  const auto kept = [&](const char* method, const char* optimizer) {
    const method::SyncOptions sync{.method = method, .outer_optimizer = optimizer};
    return fit_of_leader(plain.model, plain.train, sync, 2, 1).kept.outer / one;
  };
  EXPECT_DOUBLE_EQ(kept("diloco", "sgd"), 3);
  EXPECT_DOUBLE_EQ(kept("diloco", "nesterov"), 5);
  EXPECT_DOUBLE_EQ(kept("streaming_diloco", "adam"), 7);
  EXPECT_DOUBLE_EQ(kept("delayed_diloco", "sgd"), 8);
}

TEST(TrainingMemory, AChosenCodecIsNotKnownYet) {
  const TrainingFit plain = fit_in(1e9);
  EXPECT_GT(state_bytes(fit_of_leader(plain.model, plain.train,
                                      {.method = "diloco", .codec = "auto"}, 2, 1)),
            state_bytes(plain));
}

TEST(TrainingMemory, SeveralIslandsOfAMachineAreNamed) {
  TrainingFit fit = fit_in(1e6);
  fit.local_islands = 3;
  EXPECT_THAT([&] { require_memory(fit); },
              ThrowsMessage<InputError>(HasSubstr("too little memory for 3 islands: ")));
  fit.local_processes = 2;
  EXPECT_THAT(
      [&] { require_memory(fit); },
      ThrowsMessage<InputError>(HasSubstr("too little memory for 3 islands of 2 processes: ")));
}

TEST(TrainingMemory, Bf16AndCheckpointingNeedLess) {
  const TrainingFit plain = fit_in(1e9);
  TrainingFit half = plain;
  half.train.precision = "bf16";
  EXPECT_LT(pass_bytes(half, 48), 0.6 * pass_bytes(plain, 48));
  EXPECT_GT(state_bytes(half), state_bytes(plain));
  TrainingFit again = plain;
  again.train.activation_checkpointing = true;
  EXPECT_LT(pass_bytes(again, 48), 0.5 * pass_bytes(plain, 48));
  TrainingFit sgd = plain;
  sgd.train.optimizer = "sgd";
  EXPECT_EQ(2 * state_bytes(sgd), state_bytes(plain));
}

}  // namespace
}  // namespace atl::plan
