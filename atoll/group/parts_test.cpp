#include "atoll/group/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace atl::group {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

TEST(PartsTest, PartsAreAllOfTheValuesInOrder) {
  for (const int64_t size : {0, 1, 15, 100, 1'000'003}) {
    for (const int64_t processes : {1, 2, 3, 4, 7}) {
      for (const Parts& parts :
           {equal_parts(size, processes), Parts(size, processes, 0.1), Parts(size, processes, 0)}) {
        int64_t end = 0;
        for (int64_t rank = 0; rank < processes; ++rank) {
          EXPECT_EQ(parts.of(rank).first, end);
          EXPECT_GE(parts.of(rank).second, end);
          end = parts.of(rank).second;
        }
        EXPECT_EQ(end, size) << processes;
      }
    }
  }
}

TEST(PartsTest, EqualOnesDifferByLittle) {
  const Parts parts = equal_parts(1'000'003, 3);
  for (int64_t rank = 0; rank < 3; ++rank) {
    EXPECT_NEAR(static_cast<double>(parts.of(rank).second - parts.of(rank).first), 1e6 / 3, 40);
  }
}

TEST(PartsTest, OwnersOfASpan) {
  const Parts parts = equal_parts(96, 3);  // 32 each.
  EXPECT_THAT(parts.owners({10, 70}),
              ElementsAre(Pair(0, Pair(10, 32)), Pair(1, Pair(32, 64)), Pair(2, Pair(64, 70))));
  EXPECT_THAT(parts.owners({32, 64}), ElementsAre(Pair(1, Pair(32, 64))));
  EXPECT_THAT(parts.owners({5, 5}), IsEmpty());
}

TEST(PartsTest, Without) {
  EXPECT_THAT(without({10, 20}, {13, 15}), ElementsAre(Pair(10, 13), Pair(15, 20)));
  EXPECT_THAT(without({10, 20}, {0, 15}), ElementsAre(Pair(15, 20)));
  EXPECT_THAT(without({10, 20}, {15, 30}), ElementsAre(Pair(10, 15)));
  EXPECT_THAT(without({10, 20}, {0, 30}), IsEmpty());
  EXPECT_THAT(without({10, 20}, {0, 5}), ElementsAre(Pair(10, 20)));
  EXPECT_THAT(without({10, 20}, {25, 30}), ElementsAre(Pair(10, 20)));
  EXPECT_THAT(without({10, 20}, {12, 12}), ElementsAre(Pair(10, 12), Pair(12, 20)));
}

}  // namespace
}  // namespace atl::group
