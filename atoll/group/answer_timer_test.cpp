#include "atoll/group/answer_timer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

namespace atl::group {
namespace {

using std::chrono::milliseconds;

/// One that the timer's thread may read.
class SharedClock final : public Clock {
 public:
  Time now() const override { return Time(milliseconds(milliseconds_now)); }
  std::atomic<int64_t> milliseconds_now{0};
};

TEST(AnswerTimerTest, GivesUpWithoutAnAnswer) {
  const SystemClock clock;
  std::promise<Duration> silence;
  const AnswerTimer timer(milliseconds(50), clock, [&](Duration time) { silence.set_value(time); });
  EXPECT_GE(silence.get_future().get(), milliseconds(50));
}

TEST(AnswerTimerTest, EachAnswerBeginsAnew) {
  SharedClock clock;
  std::promise<Duration> silence;
  AnswerTimer timer(milliseconds(500), clock, [&](Duration time) { silence.set_value(time); });
  auto given_up = silence.get_future();
  clock.milliseconds_now = 1000;
  timer.answered();
  EXPECT_EQ(given_up.wait_for(milliseconds(1000)), std::future_status::timeout);
  clock.milliseconds_now = 2000;
  EXPECT_EQ(given_up.get(), milliseconds(1000));
}

}  // namespace
}  // namespace atl::group
