// The emulated link without devices, under a clock that the test moves.
#include "pipe.h"

#include <gtest/gtest.h>

#include <set>

namespace atl::wan {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Time at(Duration since_start) { return Time{} + since_start; }

/// A packet whose first byte pair is `number`.
Packet numbered(int number, size_t size = 1000) {
  Packet packet{.to = 0, .bytes = std::vector<std::byte>(size)};
  packet.bytes[0] = static_cast<std::byte>(number & 0xFF);
  packet.bytes[1] = static_cast<std::byte>(number >> 8);
  return packet;
}

int number_of(const Packet& packet) {
  return std::to_integer<int>(packet.bytes[0]) + 256 * std::to_integer<int>(packet.bytes[1]);
}

std::vector<int> drain(Pipe& pipe, Time now) {
  std::vector<int> numbers;
  while (auto packet = pipe.pop(now)) numbers.push_back(number_of(*packet));
  return numbers;
}

// 8 Mbit/s is 1000 bytes in a millisecond.
constexpr double kMillisecondAPacket = 8e6;

TEST(PipeTest, APacketArrivesAfterItsSendingTimeAndTheDelay) {
  Pipe pipe({.bits_per_second = kMillisecondAPacket, .delay = milliseconds(20), .burst_bytes = 0},
            1, 0);
  pipe.push(at({}), numbered(0));
  EXPECT_EQ(pipe.next_arrival(), at(milliseconds(21)));
  EXPECT_TRUE(drain(pipe, at(milliseconds(21)) - Duration(1)).empty());
  EXPECT_EQ(drain(pipe, at(milliseconds(21))), std::vector<int>{0});
  EXPECT_EQ(pipe.next_arrival(), std::nullopt);
}

TEST(PipeTest, TheRateHoldsOverManyPackets) {
  Pipe pipe({.bits_per_second = kMillisecondAPacket, .queue_bytes = 1 << 30, .burst_bytes = 0}, 1,
            0);
  for (int i = 0; i < 1000; ++i) pipe.push(at({}), numbered(i));
  EXPECT_EQ(drain(pipe, at(milliseconds(400))).size(), 400U);
  EXPECT_EQ(drain(pipe, at(milliseconds(1000))).size(), 600U);
}

TEST(PipeTest, AnIdleLineSendsItsBucketAtOnceAndNoMore) {
  Pipe pipe({.bits_per_second = kMillisecondAPacket, .queue_bytes = 1 << 20, .burst_bytes = 5000},
            1, 0);
  for (const Duration begin : {Duration{}, Duration(seconds(10))}) {  // Idling saves up no second.
    for (int i = 0; i < 20; ++i) pipe.push(at(begin), numbered(i));
    EXPECT_EQ(drain(pipe, at(begin)).size(), 5U);
    EXPECT_EQ(drain(pipe, at(begin + milliseconds(15))).size(), 15U);
  }
}

TEST(PipeTest, WhatDoesNotFitTheQueueIsDropped) {
  Pipe pipe({.bits_per_second = kMillisecondAPacket, .queue_bytes = 3000, .burst_bytes = 0}, 1, 0);
  for (int i = 0; i < 5; ++i) pipe.push(at({}), numbered(i));
  EXPECT_EQ(pipe.counts().full, 2);
  pipe.push(at(milliseconds(1)), numbered(5));  // One has left: there is room again.
  EXPECT_EQ(drain(pipe, at(seconds(1))), (std::vector<int>{0, 1, 2, 5}));
}

TEST(PipeTest, WhatFliesTakesNoRoomInTheQueue) {
  Pipe pipe({.bits_per_second = kMillisecondAPacket,
             .delay = seconds(1),
             .queue_bytes = 1000,
             .burst_bytes = 0},
            1, 0);
  for (int i = 0; i < 100; ++i) pipe.push(at(milliseconds(i)), numbered(i));
  EXPECT_EQ(pipe.counts().full, 0);
  EXPECT_EQ(drain(pipe, at(seconds(2))).size(), 100U);
}

std::set<int> survivors(uint64_t seed, uint64_t stream, Duration spacing) {
  Pipe pipe({.loss = 0.1}, seed, stream);
  for (int i = 0; i < 10'000; ++i) pipe.push(at(i * spacing), numbered(i));
  const auto numbers = drain(pipe, at(seconds(1000)));
  EXPECT_EQ(pipe.counts().lost + std::ssize(numbers), 10'000);
  return {numbers.begin(), numbers.end()};
}

TEST(PipeTest, LossIsTheSetShareAndAFunctionOfTheSeed) {
  const auto one = survivors(1, 0, milliseconds(1));
  // Four standard deviations of a binomial: sqrt(10000 * 0.1 * 0.9) = 30.
  EXPECT_NEAR(static_cast<double>(one.size()), 9000.0, 120.0);
  EXPECT_EQ(one, survivors(1, 0, milliseconds(7)));
  EXPECT_NE(one, survivors(2, 0, milliseconds(1)));
  EXPECT_NE(one, survivors(1, 1, milliseconds(1)));
}

TEST(PipeTest, ACutDropsWhatIsUnderWayAndWhatFollows) {
  Pipe pipe({.delay = milliseconds(10)}, 1, 0);
  pipe.push(at({}), numbered(0));
  pipe.cut();
  pipe.push(at({}), numbered(1));
  EXPECT_TRUE(drain(pipe, at(seconds(1))).empty());
  EXPECT_EQ(pipe.counts().cut, 2);
  pipe.restore();
  pipe.push(at(seconds(1)), numbered(2));
  EXPECT_EQ(drain(pipe, at(seconds(2))), std::vector<int>{2});
}

TEST(PipeTest, AShorterDelayDoesNotReorder) {
  Pipe pipe({.delay = milliseconds(50)}, 1, 0);
  pipe.push(at({}), numbered(0));
  pipe.set({.delay = milliseconds(1)});
  pipe.push(at({}), numbered(1));
  EXPECT_TRUE(drain(pipe, at(milliseconds(49))).empty());
  EXPECT_EQ(drain(pipe, at(milliseconds(50))), (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace atl::wan
