#include "atoll/swarm/pulse.h"

#include <gtest/gtest.h>

#include "atoll/swarm/contact.h"

namespace atl::swarm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kNow = Time{} + seconds(100);

TEST(PulseTest, BeatsAfterEachInterval) {
  Pulse pulse(milliseconds(200));
  pulse.rest(kNow);
  EXPECT_EQ(pulse.next(), kNow + milliseconds(200));
  pulse.report({.step = 3, .num_trained = 7});
  pulse.count_moved(10);
  pulse.count_moved(5);
  const Heartbeat heartbeat = pulse.beat(kNow + milliseconds(250));
  EXPECT_EQ(heartbeat.step, 3);
  EXPECT_EQ(heartbeat.num_trained, 7);
  EXPECT_EQ(heartbeat.moved, 15U);
  EXPECT_EQ(pulse.next(), kNow + milliseconds(450));
}

TEST(PulseTest, IsDueAtOnceWhenEnoughWasTrainedOn) {
  Pulse pulse(seconds(60));
  pulse.set_report_every(4);
  pulse.rest(kNow);
  pulse.report({.num_trained = 3});
  EXPECT_GT(pulse.next(), kNow);
  pulse.report({.num_trained = 4});
  EXPECT_LE(pulse.next(), kNow);
  pulse.beat(kNow);
  pulse.report({.num_trained = 7});
  EXPECT_GT(pulse.next(), kNow);
  pulse.report({.num_trained = 8});
  EXPECT_LE(pulse.next(), kNow);
}

TEST(ContactTest, IsLostUntilTheMemberIsTakenBack) {
  Contact contact;
  contact.connect(kNow);
  EXPECT_TRUE(contact.is_open());
  contact.lose("reset", kNow);
  EXPECT_FALSE(contact.is_connected());
  contact.connect(kNow + seconds(5));
  contact.resume();
  EXPECT_FALSE(contact.is_open()) << "nothing is said before the answer";
  contact.lose("again", kNow + seconds(9));
  EXPECT_EQ(contact.lost(), "reset") << "the first reason counts";
  EXPECT_FALSE(contact.is_lost_for(seconds(10), kNow + seconds(10)));
  EXPECT_TRUE(contact.is_lost_for(seconds(10), kNow + seconds(11)));
  contact.connect(kNow + seconds(11));
  contact.restore();
  EXPECT_TRUE(contact.is_open());
  EXPECT_FALSE(contact.is_lost_for(seconds(10), kNow + seconds(1000)));
}

TEST(ContactTest, IsSilentWhenNothingIsHeard) {
  Contact contact;
  contact.connect(kNow);
  contact.hear(kNow + seconds(1));
  EXPECT_FALSE(contact.is_silent(kNow + seconds(31), seconds(30)));
  EXPECT_TRUE(contact.is_silent(kNow + seconds(32), seconds(30)));
}

}  // namespace
}  // namespace atl::swarm
