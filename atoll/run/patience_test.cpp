// When an island that cannot use its numbers goes on, and when it gives up.
#include "atoll/run/patience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "atoll/run/events.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::run {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class PatienceTest : public testing::Test {
 protected:
  Patience patience(int num_members,
                    method::SyncOptions sync = {.method = "diloco", .sync_every = 2}) {
    return {sync, num_members, [this](const Event& event) { told_.push_back(event.kind); }};
  }

  std::vector<std::string> told_;
};

TEST_F(PatienceTest, AmongOthersASingleBadStepIsLeftOut) {
  Patience patience = this->patience(2);
  EXPECT_TRUE(patience.can_use(1, 3.0, 1.0));
  EXPECT_FALSE(patience.can_use(2, kNaN, 1.0));
  EXPECT_FALSE(patience.can_use(3, 3.0, kInfinity));
  EXPECT_THAT(told_, testing::ElementsAre(StepLeftOut::kKind, StepLeftOut::kKind));
}

TEST_F(PatienceTest, ThreePeriodsInARowAreTooMany) {
  Patience patience = this->patience(2);
  for (int64_t step = 1; step <= 5; ++step) EXPECT_FALSE(patience.can_use(step, kNaN, 1.0));
  EXPECT_TRUE(patience.can_use(6, 3.0, 1.0)) << "from here on it counts anew";
  for (int64_t step = 7; step <= 12; ++step) EXPECT_FALSE(patience.can_use(step, kNaN, 1.0));
  EXPECT_THAT(message_of([&] { patience.can_use(13, 3.0, kInfinity); }),
              testing::AllOf(testing::HasSubstr("gradient norm is inf at step 13"),
                             testing::HasSubstr("train.grad_clip")));
}

TEST_F(PatienceTest, AloneItEndsAtOnce) {
  Patience patience = this->patience(1);
  EXPECT_THROW(patience.can_use(1, kNaN, 1.0), InputError);
  EXPECT_THROW(patience.note_round({}, /*abstained=*/true), InputError);
}

TEST_F(PatienceTest, AbstainedRoundsAreCountedAndForgivenForAWhile) {
  Patience patience = this->patience(2);
  for (int turn = 0; turn < 3; ++turn) patience.note_round({.round = turn}, /*abstained=*/true);
  patience.note_round({.round = 3}, /*abstained=*/false);
  EXPECT_EQ(patience.abstained_rounds(), 3);
  EXPECT_THAT(told_, testing::SizeIs(3));
  for (int turn = 4; turn < 7; ++turn) patience.note_round({.round = turn}, /*abstained=*/true);
  EXPECT_THAT(
      message_of([&] { patience.note_round({.round = 7, .left_out = true}, /*abstained=*/true); }),
      testing::AllOf(testing::HasSubstr("and so were 3 before it"),
                     testing::HasSubstr("the others could not use it"),
                     testing::HasSubstr("look at this island's machine")));
}

TEST_F(PatienceTest, WhatIsMeantIsNoFault) {
  Patience patience = this->patience(2, {.method = "diloco", .outer_dropout = 0.5});
  for (int turn = 0; turn < 9; ++turn) patience.note_round({.round = turn}, /*abstained=*/true);
  Patience late = this->patience(2);
  for (int turn = 0; turn < 9; ++turn) {
    late.note_round({.round = turn, .included = false}, /*abstained=*/true);
  }
  EXPECT_EQ(patience.abstained_rounds() + late.abstained_rounds(), 0);
  EXPECT_THAT(told_, testing::IsEmpty());
}

}  // namespace
}  // namespace atl::run
