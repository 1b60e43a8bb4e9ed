#include "atoll/group/share.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"

namespace atl::group {
namespace {

/// The rows are numbered through.
std::vector<train::Batch> batches_of(int64_t count, int64_t rows) {
  std::vector<train::Batch> batches;
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor rows_BT = at::arange(i * rows, (i + 1) * rows, at::kLong).unsqueeze(1);
    batches.push_back({rows_BT, rows_BT + 1000});
  }
  return batches;
}

/// By batch.
std::vector<std::vector<int64_t>> rows_of(const std::vector<train::Batch>& batches) {
  std::vector<std::vector<int64_t>> rows;
  for (const train::Batch& batch : batches) {
    EXPECT_TRUE(at::equal(batch.inputs_BT + 1000, batch.targets_BT));
    auto& own = rows.emplace_back();
    for (int64_t i = 0; i < batch.inputs_BT.size(0); ++i) {
      own.push_back(batch.inputs_BT[i][0].item<int64_t>());
    }
  }
  return rows;
}

using Rows = std::vector<std::vector<int64_t>>;

TEST(ShareTest, WholeMicroBatchesAreDealt) {
  const auto batches = batches_of(4, 3);
  EXPECT_EQ(rows_of(share_of(batches, 0, 2)), (Rows{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(rows_of(share_of(batches, 1, 2)), (Rows{{6, 7, 8}, {9, 10, 11}}));
}

TEST(ShareTest, ElseTheRowsOfEach) {
  const auto batches = batches_of(3, 4);
  EXPECT_EQ(rows_of(share_of(batches, 0, 2)), (Rows{{0, 1}, {4, 5}, {8, 9}}));
  EXPECT_EQ(rows_of(share_of(batches, 1, 2)), (Rows{{2, 3}, {6, 7}, {10, 11}}));
}

TEST(ShareTest, WhatCannotBeDealtIsRefused) {
  try {
    share_of(batches_of(3, 3), 0, 2);
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("3 micro-batches of 3 rows"),
                                             testing::HasSubstr("2 processes")));
  }
}

TEST(ShareTest, UpdatesOfPartsAreTheUpdateOfTheWhole) {
  for (const std::string optimizer : {"adamw", "sgd"}) {
    const method::TrainOptions options{.optimizer = optimizer};
    const at::Tensor whole_P = at::randn({100});
    const at::Tensor parts_P = whole_P.clone();
    const at::Tensor gradients_P = at::randn({100});
    const at::Tensor given_P = gradients_P.clone();
    const auto target = [&](const at::Tensor& values_P) {
      return train::OptimizerTarget{.values_P = values_P,
                                    .gradients_P = gradients_P,
                                    .decayed = {{10, 40}, {60, 80}},
                                    .hidden = {}};
    };
    const auto whole = train::make_inner_optimizer(options, target(whole_P));
    // The cuts lie inside a decayed span, between two, and at the edge of one.
    std::vector<std::unique_ptr<train::InnerOptimizer>> parts;
    for (const auto& [begin, end] : {std::pair{0, 32}, {32, 48}, {48, 80}, {80, 100}}) {
      parts.push_back(train::make_inner_optimizer(options, part_of(target(parts_P), begin, end)));
    }
    for (int step = 0; step < 3; ++step) {
      const train::StepOptions each{.lr = 1e-2, .weight_decay = 0.1};
      whole->step(each);
      gradients_P.copy_(given_P);  // It was consumed.
      for (const auto& part : parts) part->step(each);
      gradients_P.copy_(given_P);
    }
    EXPECT_TRUE(whole_P.allclose(parts_P, 1e-6, 1e-7)) << optimizer;
  }
}

}  // namespace
}  // namespace atl::group
