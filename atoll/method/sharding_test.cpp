#include "atoll/method/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace atl::method {
namespace {

/// Bytes of the largest process, for a parameter.
double most(double share, double moments, bool has_all_gradients, int64_t processes) {
  const double leader = has_all_gradients ? 8 + moments * share : 4 + (4 + moments) * share;
  return std::max(leader, (8 + moments) * (1 - share) / static_cast<double>(processes - 1));
}

TEST(ShardingTest, NoOtherShareOfProcess0MakesTheLargestSmaller) {
  for (const int64_t processes : {2, 3, 4, 5, 8}) {
    for (const double moments : {0.0, 8.0}) {
      for (const bool has_all_gradients : {false, true}) {
        const double chosen = most(leaders_share(moments, has_all_gradients, processes), moments,
                                   has_all_gradients, processes);
        for (double share = 0; share <= 1; share += 0.01) {
          EXPECT_LE(chosen, most(share, moments, has_all_gradients, processes) + 1e-9) << processes;
        }
      }
    }
  }
  EXPECT_NEAR(most(leaders_share(8, false, 4), 8, false, 4), 4.92, 0.01);
}

}  // namespace
}  // namespace atl::method
