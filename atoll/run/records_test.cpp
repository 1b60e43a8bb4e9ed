// What waits for a run's files, and what is shown.
#include "atoll/run/records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "atoll/base/file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

class RecordsTest : public testing::Test {
 protected:
  TestFolder folder_;
  ManualClock clock_;
  std::vector<Progress> shown_;
  Records records_{folder_, clock_, [this](const Progress& now) { shown_.push_back(now); },
                   [](const Event&) {}};
};

TEST_F(RecordsTest, WhatComesBeforeTrainingBeginsWaits) {
  records_.add({.step = 1});
  records_.add_round(R"({"step": 1})");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "metrics.jsonl"));
  EXPECT_EQ(shown_.size(), 1);
  records_.begin(1);
  records_.add({.step = 2});
  EXPECT_THAT(
      read_file(folder_ / "metrics.jsonl"),
      testing::AllOf(testing::HasSubstr(R"("step":1,)"), testing::HasSubstr(R"("step":2,)")));
  EXPECT_EQ(read_file(folder_ / "rounds.jsonl"), "{\"step\": 1}\n");
}

TEST_F(RecordsTest, TheNewestValidationIsShownUntilTheNext) {
  records_.add({.step = 1, .val_loss = 4.5});
  records_.add({.step = 2});
  records_.show({.step = 3});
  ASSERT_EQ(shown_.size(), 3);
  EXPECT_EQ(shown_[1].val_loss, 4.5);
  EXPECT_EQ(shown_[2].val_loss, 4.5);
  records_.begin(3);
  EXPECT_THAT(read_file(folder_ / "metrics.jsonl"), testing::HasSubstr("4.5")) << "of step 1";
}

TEST_F(RecordsTest, ItIsStaleAfterFiveSeconds) {
  clock_.advance(std::chrono::seconds(100));
  EXPECT_TRUE(records_.is_stale());
  records_.show({.step = 1});
  EXPECT_FALSE(records_.is_stale());
  clock_.advance(std::chrono::seconds(5));
  EXPECT_TRUE(records_.is_stale());
}

}  // namespace
}  // namespace atl::run
