#include "atoll/coordinator/probers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/random.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class ProbersTest : public testing::Test {
 protected:
  /// Empty: it has a place. Whoever makes way is in `ended`.
  std::string admit(uint64_t connection, const std::string& remote) {
    ended.clear();
    const auto admitted = probers.admit(connection, remote, now, ended);
    return admitted ? "" : admitted.error().message;
  }
  std::string admit(uint64_t connection) {
    return admit(connection, "10.0." + std::to_string(connection / 200) + "." +
                                 std::to_string(connection % 200) + ":1");
  }
  bool ask(uint64_t connection, uint64_t reply_bytes, size_t bytes = 0) {
    return probers.spend(connection, Probe{.reply_bytes = reply_bytes, .data = Bytes(bytes)}, now)
        .has_value();
  }
  /// All that it may have.
  uint64_t exhaust(uint64_t connection) {
    uint64_t moved = 0;
    while (ask(connection, kMaxProbeBytes)) moved += kMaxProbeBytes;
    return moved;
  }

  Time now = Time{} + std::chrono::hours(5);
  Probers probers;
  std::vector<uint64_t> ended;
};

TEST_F(ProbersTest, OneMeasurementIsBounded) {
  ASSERT_EQ(admit(1), "");
  EXPECT_LT(exhaust(1), Probers::kMaxCost);
  EXPECT_FALSE(ask(1, kMaxProbeBytes));
  ASSERT_EQ(admit(2), "");
  EXPECT_FALSE(ask(2, kMaxProbeBytes + 1));
  EXPECT_FALSE(ask(2, 0, kMaxProbeBytes + 1));
  EXPECT_FALSE(ask(2, ~uint64_t{0}));
  EXPECT_TRUE(ask(2, kMaxProbeBytes, kMaxProbeBytes));
  // Messages without bytes are work too.
  uint64_t num_messages = 0;
  while (ask(2, 0)) num_messages += 1;
  EXPECT_LT(num_messages, Probers::kMaxCost / Probers::kMessageCost);
}

TEST_F(ProbersTest, WhoConnectsAgainHasNoMore) {
  uint64_t moved = 0;
  uint64_t connection = 0;
  while (admit(++connection).empty()) {
    moved += exhaust(connection);
    probers.end(connection, now);
    ASSERT_LT(connection, 100u);
  }
  EXPECT_THAT(admit(connection), HasSubstr("much has been measured just now: try again in "));
  EXPECT_LE(moved, Probers::kBurst);
  EXPECT_GE(moved, Probers::kBurst * 9 / 10);
  // After as long as one costs there is one more, and no second.
  now += std::chrono::seconds(Probers::kMaxCost / Probers::kCostPerSecond);
  EXPECT_EQ(admit(connection), "");
  EXPECT_THAT(admit(connection + 1), HasSubstr("just now"));
}

TEST_F(ProbersTest, WhatWasNotUsedGoesBack) {
  for (uint64_t connection = 1; connection <= 50; ++connection) {
    ASSERT_EQ(admit(connection), "") << connection;
    ASSERT_TRUE(ask(connection, 1000));
    probers.end(connection, now);
    probers.end(connection, now);  // Once.
    now += std::chrono::milliseconds(200);
  }
}

/// Whatever strangers do, all of them together get no more than the bucket has.
TEST_F(ProbersTest, AllTogetherAreBounded) {
  const Time begin = now;
  uint64_t moved = 0;
  uint64_t connection = 0;
  for (uint64_t i = 0; i < 200'000; ++i) {
    const auto chance = [&](uint64_t stream) { return random_uniform(1, stream, i); };
    now += duration_of(1e-3 * chance(1));
    if (chance(2) < 0.05 && admit(connection + 1).empty()) connection += 1;
    const uint64_t one = connection - std::min<uint64_t>(connection, 6 * chance(3));
    if (probers.contains(one)) {
      const auto bytes = static_cast<uint64_t>(chance(4) * kMaxProbeBytes);
      if (ask(one, bytes)) moved += bytes;
      if (chance(5) < 0.002) probers.end(one, now);
    }
    if (now >= probers.next_deadline()) probers.end_late(now);
    ASSERT_LE(static_cast<double>(moved),
              Probers::kBurst + Probers::kCostPerSecond * seconds(now - begin));
  }
  EXPECT_GT(moved, Probers::kBurst);
}

TEST_F(ProbersTest, AHostHasOnePlaceAndWaitsBehindIt) {
  ASSERT_EQ(admit(1, "[::1]:4000"), "");
  EXPECT_THAT(admit(2, "[::1]:4001"), HasSubstr("from there is being measured"));
  ASSERT_EQ(admit(3, "[::2]:4000"), "");
  probers.end(1, now);
  now += std::chrono::seconds(2);
  EXPECT_THAT(admit(4, "[::1]:4002"), HasSubstr("has just been measured: try again in 3 s"));
  now += std::chrono::seconds(3);
  EXPECT_EQ(admit(5, "[::1]:4003"), "");
}

TEST_F(ProbersTest, SilentOnesLeaveTheirPlaces) {
  for (uint64_t i = 1; i <= Probers::kMaxProbers; ++i) ASSERT_EQ(admit(i), "");
  EXPECT_THAT(admit(10), HasSubstr("others are measuring their lines: try again in 15 s"));
  now += std::chrono::seconds(9);
  ASSERT_TRUE(ask(1, 0));
  EXPECT_THAT(probers.end_late(now), IsEmpty());
  now += std::chrono::seconds(1);
  EXPECT_EQ(probers.end_late(now).size(), Probers::kMaxProbers - 1);
  EXPECT_TRUE(probers.contains(1));
  EXPECT_EQ(admit(10), "");
}

TEST_F(ProbersTest, WhoHadItsTurnMakesWay) {
  const Time begin = now;
  for (uint64_t i = 1; i <= Probers::kMaxProbers; ++i) {
    ASSERT_EQ(admit(i), "");
    now += std::chrono::seconds(1);
  }
  for (; now < begin + Probers::kTurn; now += std::chrono::seconds(1)) {
    for (uint64_t i = 1; i <= Probers::kMaxProbers; ++i) ASSERT_TRUE(ask(i, 0));
    EXPECT_NE(admit(10), "");
  }
  ASSERT_EQ(admit(10), "");
  EXPECT_THAT(ended, testing::ElementsAre(1));
  EXPECT_FALSE(probers.contains(1));
  // Nobody else has waited that long, and without newcomers a minute is the end.
  EXPECT_NE(admit(11), "");
  while (now < begin + Probers::kTimeout) {
    for (const uint64_t i : {2, 3, 4, 10}) ASSERT_TRUE(ask(i, 0));
    now += std::chrono::seconds(1);
    EXPECT_THAT(probers.end_late(now), IsEmpty()) << seconds(now - begin);
    if (now == begin + Probers::kTimeout) break;
  }
  now += std::chrono::seconds(1);
  EXPECT_THAT(probers.end_late(now), testing::ElementsAre(2));
}

TEST(ProbeReplyTest, IsWhatTheWireSays) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{kMaxProbeBytes}}) {
    EXPECT_EQ(probe_reply(size).joined(), encode(ProbeReply{{}, Bytes(size)}));
  }
}

}  // namespace
}  // namespace atl::swarm
