// An island of several processes trains as one process does.
#include "atoll/island/following.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "atoll/base/error.h"
#include "atoll/island/island.h"
#include "atoll/method/method.h"
#include "atoll/testing_torch/met_processes.h"
#include "atoll/testing_torch/small_run.h"

namespace atl::island {
namespace {

namespace fs = std::filesystem;

class FollowingTest : public testing::Test {
 protected:
  run::RunConfig config(int64_t steps, const std::string& method = "single") const {
    run::RunConfig config = SmallRun::config(
        steps, {.method = method, .sync_every = 4, .num_fragments = 2, .codec = "default"});
    config.data.path = (small_.folder() / "store").string();
    config.train.warmup_steps = 2;
    if (method::method_of(config.sync).makes_signs) {
      config.train.optimizer = "sgd";
      config.train.grad_clip = 0;
    }
    return config;
  }

  /// Of a run of one process.
  std::vector<double> alone(const run::RunConfig& config, const std::string& name) {
    fs::create_directories(small_.folder() / name);
    train_alone(config, small_.folder() / name, {}, nullptr, clock_, nullptr);
    return losses(name);
  }

  /// Of `size`; what each threw, or nothing.
  std::vector<std::string> several(int64_t size, const run::RunConfig& config,
                                   const std::string& name, const Asked& asked = {},
                                   const Asked& asked_of_leader = {}) {
    fs::create_directories(small_.folder() / name);
    return group::together(size, [&](group::Processes& processes) {
      if (processes.rank() > 0) return follow(processes, asked);
      tell_asked(processes, asked_of_leader);
      train_alone(config, small_.folder() / name, {}, nullptr, clock_, nullptr, &processes);
    });
  }

  /// The training loss of each step.
  std::vector<double> losses(const std::string& name) const {
    std::ifstream lines(small_.folder() / name / "metrics.jsonl");
    std::vector<double> losses;
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
      if (row.contains("loss")) losses.push_back(row["loss"]);
    }
    return losses;
  }

  static void expect_near(const std::vector<double>& got, const std::vector<double>& wanted,
                          const std::string& what) {
    ASSERT_EQ(got.size(), wanted.size()) << what;
    ASSERT_GT(got.size(), 1) << what;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5) << what << i;
  }

  SmallRun small_;
  const SystemClock clock_;
};

TEST_F(FollowingTest, LossesAreThoseOfOneProcess) {
  struct Case {
    std::string optimizer;
    int64_t steps;
  };
  for (const auto& [optimizer, steps] : {Case{"adamw", 20}, Case{"sgd", 50}}) {
    run::RunConfig config = this->config(steps);
    config.train.optimizer = optimizer;
    if (optimizer == "sgd") config.train.lr = 0.1;
    const auto wanted = alone(config, optimizer);
    EXPECT_LT(wanted.back(), wanted.front());
    for (const std::string shard : {"none", "zero1"}) {
      config.train.shard = shard;
      for (const int64_t size : {2, 4}) {
        const std::string name = optimizer + shard + std::to_string(size);
        EXPECT_THAT(several(size, config, name), testing::Each(""));
        expect_near(losses(name), wanted, name);
      }
    }
  }
}

/// Whatever changes the parameters in process 0, the others compute with the new ones.
TEST_F(FollowingTest, ValuesThatAMethodChangesReachAll) {
  for (const method::Method& method : method::methods()) {
    if (method.is_for_one) continue;
    run::RunConfig config = this->config(12, std::string(method.name));
    const std::string name = config.sync.method;
    const auto wanted = alone(config, name);
    for (const std::string shard : {"none", "zero1"}) {
      config.train.shard = shard;
      EXPECT_THAT(several(2, config, name + shard), testing::Each("")) << name;
      expect_near(losses(name + shard), wanted, name + shard);
    }
  }
}

TEST_F(FollowingTest, ARunGoesOnFromItsCheckpoint) {
  for (const std::string shard : {"none", "zero1", "zero3"}) {
    run::RunConfig config = this->config(12);
    config.train.shard = shard;
    config.train.checkpoint_every = 6;
    const auto wanted = alone(config, "alone" + shard);
    EXPECT_THAT(several(2, config, "run" + shard), testing::Each(""));
    fs::remove_all(small_.folder() / ("run" + shard) / "checkpoints" / "step-00000012");
    fs::remove(small_.folder() / ("run" + shard) / "metrics.jsonl");
    EXPECT_THAT(several(2, config, "run" + shard), testing::Each(""));
    const auto again = losses("run" + shard);
    EXPECT_EQ(again.size(), 6);
    expect_near(again, {wanted.end() - 6, wanted.end()}, shard);
    // And as one process, from the same checkpoint.
    fs::remove_all(small_.folder() / ("run" + shard) / "checkpoints" / "step-00000012");
    fs::remove(small_.folder() / ("run" + shard) / "metrics.jsonl");
    expect_near(alone(config, "run" + shard), {wanted.end() - 6, wanted.end()}, shard);
  }
}

TEST_F(FollowingTest, MicroBatchesAreDealt) {
  run::RunConfig config = this->config(6);
  config.train.micro_batch_rows = 1;
  const auto wanted = alone(config, "alone");
  EXPECT_THAT(several(2, config, "two"), testing::Each(""));
  expect_near(losses("two"), wanted, "two");
}

TEST_F(FollowingTest, WhatCannotBeDealtEndsAll) {
  const auto messages = several(3, config(6), "three");  // Of four rows.
  for (const std::string& message : messages) {
    EXPECT_THAT(message, testing::HasSubstr("dealt evenly to its 3 processes"));
  }
}

TEST_F(FollowingTest, OtherSettingsAreNamedEverywhere) {
  struct Case {
    std::string own;
    std::string said;
    std::string leaders;
  };
  for (const auto& [own, said, leaders] :
       {Case{"train.lr=0.5", "train.lr = 0.5", "0.001"},
        Case{"train.activation_checkpointing=true", "activation_checkpointing = true", "false"}}) {
    for (const std::string& message :
         several(2, config(6), "run" + leaders, {.config_file = {}, .overrides = {own}})) {
      EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("process 1 of this island"),
                                          testing::HasSubstr(said),
                                          testing::HasSubstr("process 0 has " + leaders)));
    }
  }
}

/// A file names all settings, those too that the data decide: process 0 has others by then.
TEST_F(FollowingTest, AFileOfAllSettingsMayLeaveSomeToTheData) {
  run::RunConfig config = this->config(6);
  config.sync.codec = "auto";
  config.model.vocab_size = 0;
  const Asked asked{.config_file = small_.folder() / "all.toml", .overrides = {"train.threads=1"}};
  std::ofstream(asked.config_file) << config.settings().dump(/*with_help=*/true);
  EXPECT_THAT(several(2, config, "run", asked, {.config_file = asked.config_file, .overrides = {}}),
              testing::Each(""));
}

}  // namespace
}  // namespace atl::island
