#include "atoll/base/machine_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace atl {
namespace {

TEST(MachineMemory, ThePeakStaysWhenWhatWasHeldIsGone) {
  const double before = peak_memory_bytes();
  ASSERT_GT(before, 0) << "no /proc/self/status";
  constexpr size_t kBytes = size_t{96} << 20;
  {
    std::vector<char> held(kBytes, 1);
    // Read, so that no compiler leaves the memory out.
    EXPECT_EQ(std::ranges::count(held, 1), static_cast<std::ptrdiff_t>(kBytes));
  }
  const double after = peak_memory_bytes();
  EXPECT_GE(after, static_cast<double>(kBytes));
  EXPECT_LT(after, usable_memory_bytes());
  EXPECT_GE(after, before);
}

}  // namespace
}  // namespace atl
