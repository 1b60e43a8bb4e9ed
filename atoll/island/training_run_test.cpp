// What the loop does when an island's numbers are no longer numbers.
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>

#include "atoll/island/training_run.h"
#include "atoll/method/method.h"
#include "atoll/testing/thread_group.h"
#include "atoll/testing_torch/small_run.h"
#include "atoll/testing_torch/stand_in_device.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPeriod = 4;

class TrainingRunTest : public testing::Test {
 protected:
  using Meddle = std::function<void(int64_t, const model::Parameters&)>;

  /// Trains replica `rank`; after each step `meddle(step, parameters)` may touch them.
  Result<run::Summary> train(
      collective::Averager& averager, int rank, const std::string& method,
      const Meddle& meddle = [](int64_t, const auto&) {}) {
    run::RunConfig config = SmallRun::config(5 * kPeriod, {.method = method,
                                                           .sync_every = kPeriod,
                                                           .num_fragments = 2,
                                                           .fragment_update_alpha = 0.5,
                                                           .codec = codec_});
    if (method::method_of(config.sync).makes_signs) {
      config.train.optimizer = "sgd";
      config.train.lr = 3e-3;
      config.train.grad_clip = 0;
    }
    Materials materials =
        small_.materials(config, rank == 1 ? second_device_ : at::Device(at::kCPU));
    const SystemClock clock;
    const fs::path folder = folder_ / method / std::to_string(rank);
    fs::create_directories(folder);
    return TrainingRun({.config = config,
                        .folder = folder,
                        .materials = materials,
                        .averager = averager,
                        .rank = rank,
                        .clock = clock,
                        .on_progress =
                            [&](const run::Progress& progress) {
                              meddle(progress.step, materials.model.parameters());
                            }})
        .train();
  }

  /// How many abstained, round by round.
  std::vector<size_t> abstentions(const std::string& method) const {
    std::ifstream lines(folder_ / method / "0" / "rounds.jsonl");
    std::vector<size_t> out;
    for (std::string line; std::getline(lines, line);) {
      out.push_back(nlohmann::json::parse(line)["abstainers"].size());
    }
    return out;
  }

  SmallRun small_;
  const TestFolder& folder_ = small_.folder();
  std::string codec_ = "default";
  at::Device second_device_ = at::kCPU;  // Of replica 1.
};

/// The gradient of the step after `step` becomes NaN, and nothing else.
auto poison_gradient_after(int64_t step) {
  return [step](int64_t now, const model::Parameters& parameters) {
    if (now != step) return;
    parameters.gradients_P().fill_(std::numeric_limits<double>::quiet_NaN());
  };
}

/// The parameters of `step` become NaN, as after an overflow, or another value.
auto poison_after(int64_t step, double value = std::numeric_limits<double>::quiet_NaN()) {
  return [step, value](int64_t now, const model::Parameters& parameters) {
    if (now == step) parameters.values_P().fill_(value);
  };
}

TEST_F(TrainingRunTest, AnIslandThatOverflowsTakesTheOthersModelAndGoesOn) {
  for (const std::string method : {"diloco", "streaming_diloco", "eager_diloco", "delayed_diloco",
                                   "sparse_loco", "cocktail_sgd"}) {
    collective::ThreadGroup group(2);
    const auto second = group.member(1);
    auto other = std::async(std::launch::async,
                            [&] { return train(*second, 1, method, poison_after(kPeriod + 1)); });
    const auto first = group.member(0);
    const auto ours = train(*first, 0, method);
    const auto theirs = other.get();
    ASSERT_TRUE(ours && theirs) << method;
    EXPECT_EQ(ours->digest, theirs->digest);
    EXPECT_TRUE(std::isfinite(ours->val_loss));
    EXPECT_TRUE(std::isfinite(theirs->train_loss));
    EXPECT_LT(ours->val_loss, ours->val_loss_start);
    // It abstained, and counts again at the end.
    EXPECT_THAT(abstentions(method), testing::AllOf(testing::Contains(1), testing::Contains(0)));
    EXPECT_EQ(abstentions(method).back(), 0);
  }
}

/// It validates and writes its checkpoints, too.
TEST_F(TrainingRunTest, AnIslandOnADeviceEndsWithTheModelOfOneOnTheCpu) {
  second_device_ = model::stand_in::a_device();
  for (const std::string method : {"diloco", "streaming_diloco", "eager_diloco", "delayed_diloco",
                                   "sparse_loco", "cocktail_sgd"}) {
    collective::ThreadGroup group(2);
    const auto second = group.member(1);
    auto other = std::async(std::launch::async, [&] { return train(*second, 1, method); });
    const auto first = group.member(0);
    const auto ours = train(*first, 0, method);
    const auto theirs = other.get();
    ASSERT_TRUE(ours && theirs) << method;
    EXPECT_EQ(ours->digest, theirs->digest) << method;
    EXPECT_NEAR(ours->val_loss, theirs->val_loss, 1e-4) << method;
  }
}

TEST_F(TrainingRunTest, AGradientThatIsNoNumberCountsForNothing) {
  for (const std::string method : {"data_parallel", "demo"}) {
    collective::ThreadGroup group(2);
    const auto second = group.member(1);
    auto other = std::async(std::launch::async,
                            [&] { return train(*second, 1, method, poison_gradient_after(5)); });
    const auto first = group.member(0);
    const auto ours = train(*first, 0, method);
    const auto theirs = other.get();
    ASSERT_TRUE(ours && theirs) << method;
    EXPECT_EQ(ours->digest, theirs->digest);
    EXPECT_LT(ours->val_loss, ours->val_loss_start);
    std::vector<size_t> expected(5 * kPeriod);
    expected[5] = 1;
    EXPECT_EQ(abstentions(method), expected);
  }
}

TEST_F(TrainingRunTest, WhatTheCodecCannotHoldIsAbstainedFromToo) {
  codec_ = "fp16";  // Up to 65504.
  collective::ThreadGroup group(2);
  const auto second = group.member(1);
  auto other = std::async(std::launch::async, [&] {
    return train(*second, 1, "diloco", poison_after(2 * kPeriod - 1, 1e6));
  });
  const auto first = group.member(0);
  const auto ours = train(*first, 0, "diloco");
  const auto theirs = other.get();
  ASSERT_TRUE(ours && theirs);
  EXPECT_EQ(ours->digest, theirs->digest);
  EXPECT_THAT(abstentions("diloco"), testing::ElementsAre(0, 1, 0, 0, 0));
}

TEST_F(TrainingRunTest, ARunThatTheCodecCannotServeEnds) {
  codec_ = "fp16";
  collective::Alone alone;
  EXPECT_THAT(
      message_of([&] { train(alone, 0, "diloco", poison_after(kPeriod - 1, 1e6)); }),
      testing::AllOf(testing::HasSubstr("sync.codec = 'fp16'"), testing::HasSubstr("bf16, fp32")));
}

TEST_F(TrainingRunTest, AloneItEndsAndSaysWhatToDo) {
  for (const std::string method : {"single", "data_parallel", "diloco"}) {
    collective::Alone alone;
    EXPECT_THAT(message_of([&] { train(alone, 0, method, poison_after(6)); }),
                testing::AllOf(testing::HasSubstr("loss is nan at step 7"),
                               testing::HasSubstr("train.lr")));
  }
}

TEST_F(TrainingRunTest, WhenAllOverflowTheRunEnds) {
  for (const std::string method : {"data_parallel", "diloco"}) {
    collective::ThreadGroup group(2);
    const auto train_poisoned = [&](int rank) {
      const auto member = group.member(rank);
      // From the start and again and again, so that no sync can mend it.
      return train(*member, rank, method, [](int64_t, const model::Parameters& parameters) {
        parameters.values_P().fill_(std::numeric_limits<double>::quiet_NaN());
      });
    };
    auto other = std::async(std::launch::async, [&] { return train_poisoned(1); });
    EXPECT_THROW((void)train_poisoned(0), InputError) << method;
    EXPECT_THROW((void)other.get(), InputError) << method;
  }
}

}  // namespace
}  // namespace atl::island
