#include "atoll/run/diary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

class DiaryTest : public testing::Test {
 protected:
  Diary open() const { return Diary(folder_ / "rounds"); }
  size_t num_files() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(folder_ / "rounds"), {}));
  }

  TestFolder folder_;
};

TEST_F(DiaryTest, AFolderWithoutOneHasDoneNothing) {
  EXPECT_FALSE(open().membership());
  EXPECT_EQ(open().last_step(), -1);
  EXPECT_EQ(open().trained_at(7), 0);
}

TEST_F(DiaryTest, ComesBackAsItWas) {
  {
    Diary diary = open();
    diary.begin({.run = "r", .term = 3, .member = 5, .step = 10});
    diary.note_step(11, {.unit = 22, .trained = 1, .member = 5});
    diary.note_step(12, {.unit = 24, .trained = 2, .member = 5});
    diary.note_sent(2, 0xFFFFFFFFFFFFFFFF);
  }
  const Diary diary = open();
  EXPECT_EQ(diary.membership()->run, "r");
  EXPECT_EQ(diary.membership()->term, 3);
  EXPECT_EQ(diary.membership()->member, 5);
  EXPECT_EQ(diary.step(12)->unit, 24);
  EXPECT_FALSE(diary.step(13));
  EXPECT_EQ(diary.sent(2), 0xFFFFFFFFFFFFFFFF);
  EXPECT_EQ(diary.last_step(), 12);
  EXPECT_TRUE(diary.has_steps(10, 12));
  EXPECT_FALSE(diary.has_steps(9, 12));
  EXPECT_FALSE(diary.has_steps(10, 13));
  EXPECT_EQ(diary.trained_at(10), 0);
  EXPECT_EQ(diary.trained_at(11), 1);
  EXPECT_EQ(diary.trained_at(INT64_MAX), 2);
}

TEST_F(DiaryTest, WhatACheckpointIncludesIsDeletedOnceItIsComplete) {
  std::function<void()> complete;
  {
    Diary diary = open();
    diary.begin({.run = "r", .term = 3, .member = 5});
    for (int64_t step = 1; step <= 6; ++step) {
      diary.note_step(step, {.unit = step, .trained = step, .member = 5});
      if (step == 4) complete = diary.checkpoint_begins(4, 4);
    }
  }
  EXPECT_TRUE(open().has_steps(0, 6)) << "should the checkpoint not be completed";
  EXPECT_TRUE(open().has_steps(4, 2)) << "of a round that was on its way at the checkpoint";
  complete();
  EXPECT_EQ(num_files(), 1);
  EXPECT_FALSE(open().step(4));
  EXPECT_TRUE(open().has_steps(4, 6));
  EXPECT_EQ(open().trained_at(4), 4);
  EXPECT_EQ(open().membership()->member, 5);
}

/// A process that computes again writes checkpoints before it is where the one before it was.
TEST_F(DiaryTest, WhatAnEarlierProcessDidBehindACheckpointStays) {
  {
    Diary diary = open();
    diary.begin({.run = "r", .term = 3, .member = 5});
    for (int64_t step = 1; step <= 6; ++step) {
      diary.note_step(step, {.unit = step, .trained = step, .member = 5});
    }
    diary.note_sent(1, 77);
  }
  {
    Diary diary = open();
    for (int64_t step = 1; step <= 4; ++step) {
      diary.note_step(step, {.unit = step, .trained = step, .member = 5});
    }
    diary.checkpoint_begins(4, 4)();
  }
  EXPECT_EQ(num_files(), 1);
  EXPECT_TRUE(open().has_steps(4, 6));
  EXPECT_EQ(open().sent(1), 77);
}

TEST_F(DiaryTest, AnotherMemberDoesLaterStepsAnew) {
  {
    Diary diary = open();
    diary.begin({.run = "r", .term = 3, .member = 5});
    for (int64_t step = 1; step <= 6; ++step) {
      diary.note_step(step, {.unit = step, .trained = step, .member = 5});
    }
  }
  {
    Diary diary = open();
    diary.begin({.run = "r", .term = 4, .member = 7, .step = 4});
    diary.note_step(5, {.unit = 50, .trained = 1, .member = 7});
  }
  EXPECT_EQ(num_files(), 1);
  const Diary diary = open();
  EXPECT_EQ(diary.step(4)->member, 5);
  EXPECT_EQ(diary.step(5)->unit, 50);
  EXPECT_EQ(diary.last_step(), 5);
  EXPECT_EQ(diary.trained_at(2), 0) << "not as this member";
  EXPECT_EQ(diary.trained_at(5), 1);
}

TEST_F(DiaryTest, ATornLineIsPassedOver) {
  {
    Diary diary = open();
    diary.begin({.run = "r", .term = 3, .member = 5});
    diary.note_step(1, {.unit = 1, .trained = 1, .member = 5});
  }
  std::ofstream(folder_ / "rounds" / "00000000.diary", std::ios::app) << R"({"step": 2, "un)";
  {
    Diary diary = open();
    diary.note_step(2, {.unit = 2, .trained = 2, .member = 5});
  }
  EXPECT_TRUE(open().has_steps(0, 2));
}

}  // namespace
}  // namespace atl::run
