// Which unit of data each step is trained on, and what waiting for it costs.
#include "atoll/run/unit_source.h"

#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

class UnitSourceTest : public testing::Test {
 protected:
  TestFolder folder_;
  ManualClock clock_;
  TimeSpent time_;
};

TEST_F(UnitSourceTest, WithoutLeasesARankHasItsShareOfEachStep) {
  UnitSource units({.num_members = 3, .rank = 1}, clock_, time_);
  EXPECT_EQ(units.take(1), 1);
  EXPECT_EQ(units.take(2), 4);
  EXPECT_EQ(units.num_trained(), 2);
  EXPECT_EQ(units.num_now(), 2);
}

TEST_F(UnitSourceTest, WaitingForALeaseIsNoComputing) {
  UnitSource units({.next = [&]() -> Result<int64_t> {
                     clock_.advance(std::chrono::seconds(2));
                     return 17;
                   }},
                   clock_, time_);
  EXPECT_EQ(units.take(1), 17);
  time_.add(TimeSpent::On::kTraining, 5);
  const SecondsSpent spent = time_.spent(/*stalled=*/1, /*blocked=*/0.25);
  EXPECT_DOUBLE_EQ(spent.computing, 2);
  EXPECT_DOUBLE_EQ(spent.handling, 0.75);
  EXPECT_DOUBLE_EQ(spent.waiting, 2.25);
}

TEST_F(UnitSourceTest, AFailureCountsForNothing) {
  UnitSource units({.next = []() -> Result<int64_t> { return failure("lost"); }}, clock_, time_);
  EXPECT_FALSE(units.take(1));
  EXPECT_EQ(units.num_trained(), 0);
}

TEST_F(UnitSourceTest, AStepThatIsTakenAgainHasItsUnitOfBefore) {
  int64_t next = 40;
  const auto lease = [&]() -> Result<int64_t> { return next++; };
  {
    Diary diary(folder_);
    diary.begin({.run = "r", .term = 1, .member = 1});
    UnitSource units({.num_members = 2, .rank = 1, .next = lease, .diary = &diary}, clock_, time_);
    EXPECT_EQ(units.take(1), 40);
    EXPECT_EQ(units.take(2), 41);
  }
  Diary diary(folder_);
  UnitSource again({.num_members = 2, .rank = 1, .next = lease, .diary = &diary}, clock_, time_);
  EXPECT_EQ(again.take(1), 40);
  EXPECT_EQ(again.num_trained(), 1);
  EXPECT_EQ(again.take(2), 41);
  EXPECT_EQ(again.take(3), 42);
  EXPECT_EQ(again.num_trained(), 3);
}

}  // namespace
}  // namespace atl::run
