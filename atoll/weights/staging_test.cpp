#include "atoll/weights/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <utility>

#include "atoll/base/file.h"
#include "atoll/base/machine_memory.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/weights/checkpoint.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr double kMB = 1e6;
constexpr size_t kFilled = size_t{1} << 20;

TensorView view(const std::string& name, std::span<const float> values) {
  return {
      .name = name, .shape = {static_cast<int64_t>(values.size())}, .bytes = std::as_bytes(values)};
}

/// All of it is touched.
std::vector<float> numbered(size_t size, float from) {
  std::vector<float> values(size);
  std::iota(values.begin(), values.end(), from);
  return values;
}

class StagingTest : public testing::Test {
 protected:
  /// A view of values that are spilled and do not change.
  TensorView spilled(const std::string& name, const std::vector<float>& values) {
    const SpilledArray& array =
        spilled_.emplace_back(folder_ / "spilled", values.size() * sizeof(float));
    const auto bytes = std::as_bytes(std::span(values));
    for (size_t begin = 0; begin < bytes.size(); begin += kFilled) {  // The peak is measured.
      const size_t end = std::min(begin + kFilled, bytes.size());
      std::ranges::copy(bytes.subspan(begin, end - begin), array.bytes().subspan(begin).begin());
      let_rest(array.bytes().subspan(begin, end - begin));
    }
    return {.name = name,
            .shape = {static_cast<int64_t>(values.size())},
            .bytes = array.bytes(),
            .is_mapped = true,
            .is_final = true};
  }

  static CheckpointContents contents(std::vector<TensorView> model,
                                     std::vector<TensorView> optimizer) {
    return {.step = 1,
            .model = std::move(model),
            .optimizer = std::move(optimizer),
            .files = {{"config.json", "{}"}, {"state.json", "{}"}},
            .data_order = "{}"};
  }

  TestFolder folder_;
  std::vector<SpilledArray> spilled_;
};

TEST_F(StagingTest, TheSameIsWrittenWhereverTheCopiesAre) {
  // Longer than what is read at a time, and no multiple of it.
  std::vector<float> weights = numbered(5'000'001, 0.5F);
  const std::vector<float> moments = numbered(2'200'000, -7.0F);
  const SystemClock clock;
  for (const auto place : {StagingPlace::kMemory, StagingPlace::kDisk}) {
    const fs::path folder = folder_ / (place == StagingPlace::kDisk ? "disk" : "memory");
    CheckpointWriter writer(folder, 0, place);
    for (int i = 0; i < 2; ++i) {  // The second into the room of the first.
      weights = numbered(weights.size(), 0.5F);
      writer.begin(contents({view("weights", weights), view("none", {})},
                            {view("live", weights), spilled("moments", moments)}));
      writer.release(clock);
      weights.assign(weights.size(), -9.0F);  // The next update.
      ASSERT_EQ(writer.finish().value_or(""), "");
      EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 1) << "copies have no name";
    }
  }
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const fs::path file = fs::path("step-00000001") / name;
    EXPECT_EQ(read_file(folder_ / "disk" / file), read_file(folder_ / "memory" / file)) << name;
  }
  const Checkpoint checkpoint(folder_ / "disk" / "step-00000001");
  std::vector<float> read(moments.size());
  copy_as_f32(checkpoint.optimizer().at("moments"), read, "x");
  EXPECT_EQ(read, moments);
}

TEST_F(StagingTest, OnTheDiskItTakesSomeMegabytesWhateverTheSize) {
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<float> weights = numbered(kBytes / sizeof(float), 0);
  const auto growth = [&](StagingPlace place) {
    const TensorView moments = spilled("moments", weights);
    const double before = peak_memory_bytes();
    CheckpointWriter writer(folder_ / "run", 0, place);
    writer.reserve(contents({view("weights", weights)}, {moments}));
    writer.begin(contents({view("weights", weights)}, {moments}));
    EXPECT_EQ(writer.finish().value_or(""), "");
    const Checkpoint checkpoint(folder_ / "run" / "step-00000001");  // Verified likewise.
    return peak_memory_bytes() - before;
  };
  EXPECT_LT(growth(StagingPlace::kDisk), 40 * kMB);
  EXPECT_GT(growth(StagingPlace::kMemory), 50 * kMB) << "what the other saves";
}

TEST_F(StagingTest, WhatIsFinalIsNotCopied) {
  const std::vector<float> values(1000, 2.0F);
  for (const auto place : {StagingPlace::kMemory, StagingPlace::kDisk}) {
    Staging staging(place, folder_ / "staging");
    std::vector<TensorView> views = {view("weights", values), spilled("moments", values)};
    const std::byte* const moments = views[1].bytes.data();
    staging.make_room(views);
    EXPECT_EQ(staging.num_bytes(), 4000U);
    staging.copy(views);
    EXPECT_EQ(staging.num_bytes(), 4000U);
    EXPECT_NE(views[0].bytes.data(), std::as_bytes(std::span(values)).data());
    EXPECT_EQ(views[0].is_mapped, place == StagingPlace::kDisk);
    EXPECT_EQ(views[1].bytes.data(), moments);
  }
}

TEST_F(StagingTest, CopiesOfOtherSizesTakeTheirPlace) {
  Staging staging(StagingPlace::kDisk, folder_);
  for (const size_t size : {1000U, 10U, 3'000'000U}) {
    const std::vector<float> values = numbered(size, 1);
    std::vector<TensorView> views = {view("weights", values)};
    staging.copy(views);
    EXPECT_EQ(staging.num_bytes(), size * sizeof(float));
    EXPECT_TRUE(std::ranges::equal(views[0].bytes, std::as_bytes(std::span(values))));
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(StagingTest, ADiskWithoutRoomIsSaidBeforeTraining) {
  const std::vector<float> values(1000, 1.0F);
  CheckpointWriter writer(folder_, 0, StagingPlace::kDisk);
  struct rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small{.rlim_cur = 2000, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      message_of([&] { writer.reserve(contents({view("weights", values)}, {})); });
  writer.begin(contents({view("weights", values)}, {}));
  const auto error = writer.finish();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(message, HasSubstr(folder_.path().string()));
  EXPECT_THAT(error, testing::Optional(HasSubstr(folder_.path().string())));
  writer.begin(contents({view("weights", values)}, {}));
  EXPECT_EQ(writer.finish().value_or(""), "");
}

}  // namespace
}  // namespace atl::weights
