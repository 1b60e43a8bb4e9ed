#include "atoll/weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    weights_.resize(1000, 1.5F);
    moments_.resize(1000, 0.25F);
  }

  CheckpointContents contents(int64_t step) {
    const auto view = [](const char* name, const std::vector<float>& values) {
      return TensorView{.name = name,
                        .type = DType::kF32,
                        .shape = {static_cast<int64_t>(values.size())},
                        .bytes = std::as_bytes(std::span(values))};
    };
    return {.step = step,
            .model = {view("weights", weights_)},
            .optimizer = {view("moments", moments_)},
            .files = {{"config.json", "{}"}, {"state.json", "{\"step\": 1}"}},
            .data_order = "{}"};
  }

  fs::path newest() const { return list_checkpoints(folder_).back().second; }

  void edit(const fs::path& file, std::streamoff from_end, char value) const {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(-from_end, std::ios::end);
    out.put(value);
  }

  std::string error_on_opening() const {
    return message_of([&] { const Checkpoint checkpoint(newest()); });
  }

  TestFolder folder_;
  std::vector<float> weights_;
  std::vector<float> moments_;
};

TEST_F(CheckpointTest, HoldsWhatTheMemoryHeldBeforeRelease) {
  const SystemClock clock;
  CheckpointWriter writer(folder_, 0);
  writer.begin(contents(7));
  writer.release(clock);
  weights_.assign(1000, -9.0F);  // The next optimiser update.
  ASSERT_FALSE(writer.finish());
  const Checkpoint checkpoint(newest());
  std::vector<float> read(1000);
  copy_as_f32(checkpoint.model().at("weights"), read, "x");
  EXPECT_THAT(read, testing::Each(1.5F));
  EXPECT_EQ(checkpoint.state(), "{\"step\": 1}");
  EXPECT_EQ(newest().filename(), "step-00000007");
}

TEST_F(CheckpointTest, WhatWasReservedNeedNotBeWhatIsWritten) {
  CheckpointWriter writer(folder_, 0);
  EXPECT_EQ(writer.reserved_bytes(), 0U);
  writer.reserve(contents(1));
  EXPECT_EQ(writer.reserved_bytes(), 8000U);
  moments_.resize(10);
  CheckpointContents grown = contents(1);
  grown.optimizer.push_back(grown.model.front());
  grown.optimizer.back().name = "live";
  writer.begin(std::move(grown));
  ASSERT_FALSE(writer.finish());
  const Checkpoint checkpoint(newest());
  EXPECT_EQ(checkpoint.optimizer().at("moments").shape, std::vector<int64_t>{10});
  std::vector<float> live(1000);
  copy_as_f32(checkpoint.optimizer().at("live"), live, "x");
  EXPECT_THAT(live, testing::Each(1.5F));
}

TEST_F(CheckpointTest, KeepsTheNewestAndPassesOverTemporaryNames) {
  CheckpointWriter writer(folder_, 2);
  for (const int64_t step : {10, 20, 30}) writer.begin(contents(step));
  ASSERT_FALSE(writer.finish());
  fs::create_directory(folder_ / "step-00000040.tmp");
  const auto found = list_checkpoints(folder_);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].first, 20);
  EXPECT_EQ(found[1].first, 30);
}

TEST_F(CheckpointTest, WhatAKillLeftBehindIsPassedOverAndRemoved) {
  fs::create_directories(folder_ / "step-00000005.old.tmp");
  fs::create_directories(folder_ / "step-00000010.tmp");
  EXPECT_TRUE(list_checkpoints(folder_).empty());
  CheckpointWriter writer(folder_, 0);
  writer.begin(contents(10));
  ASSERT_FALSE(writer.finish());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(CheckpointTest, AnEditedTensorIsNamed) {
  CheckpointWriter writer(folder_, 0);
  writer.begin(contents(1));
  ASSERT_FALSE(writer.finish());
  edit(newest() / "optimizer.safetensors", 2, '\x55');
  EXPECT_THAT(error_on_opening(), HasSubstr("tensor 'moments' of optimizer.safetensors"));
}

TEST_F(CheckpointTest, ATruncatedFileIsNamed) {
  CheckpointWriter writer(folder_, 0);
  writer.begin(contents(1));
  ASSERT_FALSE(writer.finish());
  fs::resize_file(newest() / "model.safetensors", 600);
  EXPECT_THAT(error_on_opening(), HasSubstr("model.safetensors"));
}

TEST_F(CheckpointTest, AnEditedConfigOrManifestIsNamed) {
  CheckpointWriter writer(folder_, 0);
  writer.begin(contents(1));
  ASSERT_FALSE(writer.finish());
  edit(newest() / "config.json", 1, ']');
  EXPECT_THAT(error_on_opening(), HasSubstr("config.json"));
  fs::resize_file(newest() / "manifest.json", 20);
  EXPECT_THAT(error_on_opening(), HasSubstr("manifest.json"));
}

TEST_F(CheckpointTest, AFullDiskLeavesThePreviousOneValid) {
  CheckpointWriter writer(folder_, 1);
  writer.begin(contents(1));
  ASSERT_FALSE(writer.finish());

  // A limit on file size fails a write in the middle, as a full disk does.
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small{.rlim_cur = 2000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  writer.begin(contents(2));
  const auto error = writer.finish();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);

  ASSERT_TRUE(error);
  EXPECT_THAT(*error, HasSubstr("model.safetensors"));
  ASSERT_EQ(list_checkpoints(folder_).size(), 1U);
  EXPECT_EQ(error_on_opening(), "");
  EXPECT_FALSE(fs::exists(folder_ / "step-00000002.tmp"));
}

}  // namespace
}  // namespace atl::weights
