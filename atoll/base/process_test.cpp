#include "atoll/base/process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace atl {
namespace {

class SpinningTest : public testing::Test {
 protected:
  SpinningTest() {
    ::unsetenv("GOMP_SPINCOUNT");
    ::unsetenv("OMP_WAIT_POLICY");
  }
  static std::string count() {
    const char* value = std::getenv("GOMP_SPINCOUNT");
    return value == nullptr ? "none" : value;
  }
};

TEST_F(SpinningTest, IsLimitedOnceForThisProcessAndItsChildren) {
  EXPECT_TRUE(limit_spinning());
  const int count_of_spins = std::stoi(count());
  EXPECT_GT(count_of_spins, 100);
  EXPECT_LT(count_of_spins, 30'000);
  EXPECT_FALSE(limit_spinning());
}

TEST_F(SpinningTest, WhatTheUserSetStays) {
  ::setenv("GOMP_SPINCOUNT", "7", 1);
  EXPECT_FALSE(limit_spinning());
  EXPECT_EQ(count(), "7");
}

TEST_F(SpinningTest, APolicyOfTheUserDecides) {
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_FALSE(limit_spinning());
  EXPECT_EQ(count(), "none");
}

}  // namespace
}  // namespace atl
