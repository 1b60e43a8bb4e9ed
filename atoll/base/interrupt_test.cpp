#include "atoll/base/interrupt.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>

namespace atl {
namespace {

// Each in a process of its own: the counts are the process's.
TEST(InterruptDeathTest, SignalsOfSeveralKindsAreOneRequest) {
  EXPECT_EXIT(
      {
        watch_interrupts();
        if (num_interrupts() != 0) ::_exit(1);
        ::raise(SIGTERM);
        ::raise(SIGINT);
        ::_exit(num_interrupts() == 1 ? 7 : 2);
      },
      testing::ExitedWithCode(7), "");
}

TEST(InterruptDeathTest, TheSecondOfOneKindEndsTheProcess) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          watch_interrupts();
          ::raise(signal);
          ::raise(signal);
          ::_exit(7);
        },
        testing::ExitedWithCode(128 + signal), "");
  }
}

}  // namespace
}  // namespace atl
