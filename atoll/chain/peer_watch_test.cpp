#include "atoll/chain/peer_watch.h"

#include <gtest/gtest.h>

namespace atl::chain {
namespace {

using std::chrono::milliseconds;

class PeerWatchTest : public ::testing::Test {
 protected:
  /// A ping, and its answer so much later.
  void answer(Duration after, uint64_t num_passes = 0, uint32_t pass_ms = 0) {
    const Ping ping = watch_.ping(now_);
    now_ += after;
    watch_.hear({.number = ping.number, .num_passes = num_passes, .pass_ms = pass_ms}, now_);
  }

  Time now_{std::chrono::seconds(100)};
  PeerWatch watch_;
};

TEST_F(PeerWatchTest, WhoDoesNotAnswerForMuchLongerThanUsualHangs) {
  for (int i = 0; i < 20; ++i) answer(milliseconds(30));
  EXPECT_NEAR(seconds(watch_.round_trip()), 0.03, 1e-6);
  watch_.ping(now_);
  EXPECT_FALSE(watch_.hangs(now_ + milliseconds(390)));
  EXPECT_TRUE(watch_.hangs(now_ + milliseconds(410)));
}

TEST_F(PeerWatchTest, OverASlowLineItMayTakeLonger) {
  for (int i = 0; i < 50; ++i) answer(milliseconds(600));
  watch_.ping(now_);
  EXPECT_FALSE(watch_.hangs(now_ + milliseconds(1100)));
  EXPECT_TRUE(watch_.hangs(now_ + milliseconds(1300)));
}

TEST_F(PeerWatchTest, APassThatLastsMuchLongerThanOthersHangsThoughPingsAreAnswered) {
  answer(milliseconds(1), 0, 4000);
  EXPECT_FALSE(watch_.hangs(now_)) << "nobody knows how long they last there";
  answer(milliseconds(1), 0, 5100);
  EXPECT_TRUE(watch_.hangs(now_));
  for (uint64_t i = 1; i < 60; ++i) answer(milliseconds(1), i, 20);
  answer(milliseconds(1), 60, 2900);
  EXPECT_FALSE(watch_.hangs(now_));
  answer(milliseconds(1), 60, 3100);
  EXPECT_TRUE(watch_.hangs(now_));
  for (uint64_t i = 61; i < 120; ++i) answer(milliseconds(1), i, 400);
  answer(milliseconds(1), 120, 5000);
  EXPECT_FALSE(watch_.hangs(now_)) << "16 times as long as usual is more";
  answer(milliseconds(1), 121, 0);
  EXPECT_FALSE(watch_.hangs(now_));
  EXPECT_TRUE(watch_.is_idle());
}

}  // namespace
}  // namespace atl::chain
