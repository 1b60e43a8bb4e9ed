#include "atoll/base/mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace atl {
namespace {

/// What one thread hands to another.
struct Box {
  Mutex mutex;
  Condition changed;
  int value ATOLL_GUARDED_BY(mutex) = 0;
};

TEST(MutexTest, WhatIsAddedWithItHeldIsNotLost) {
  Box box;
  {
    const auto add = [&] {
      for (int i = 0; i < 10'000; ++i) {
        const MutexLock lock(box.mutex);
        box.value += 1;
      }
    };
    const std::jthread one(add);
    const std::jthread other(add);
  }
  const MutexLock lock(box.mutex);
  EXPECT_EQ(box.value, 20'000);
}

TEST(MutexTest, WhoWaitsLetsOthersIn) {
  Box box;
  MutexLock lock(box.mutex);
  const std::jthread thread([&] {
    const MutexLock own(box.mutex);
    box.value = 5;
    box.changed.notify_all();
  });
  box.changed.wait(lock, [&]() ATOLL_REQUIRES(box.mutex) { return box.value > 0; });
  EXPECT_EQ(box.value, 5);
}

TEST(MutexTest, AWaitWithAPatienceSaysWhetherItHolds) {
  Box box;
  MutexLock lock(box.mutex);
  const auto holds = [&]() ATOLL_REQUIRES(box.mutex) { return box.value > 0; };
  EXPECT_FALSE(box.changed.wait_for(lock, std::chrono::milliseconds(1), holds));
  box.value = 1;
  EXPECT_TRUE(box.changed.wait_for(lock, std::chrono::hours(1), holds));
}

TEST(MutexTest, BetweenUnlockAndLockItIsFree) {
  Box box;
  MutexLock lock(box.mutex);
  lock.unlock();
  std::jthread([&] {
    const MutexLock own(box.mutex);
    box.value = 1;
  }).join();
  lock.lock();
  EXPECT_EQ(box.value, 1);
}

}  // namespace
}  // namespace atl
