// The order and the bounds of a bulk connection's frames.
#include "atoll/net/stripe_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::net {
namespace {

constexpr size_t kWindow = size_t{64} << 10;
constexpr Time kStart = Time{} + std::chrono::seconds(10);

TEST(StripeArrivalsTest, FramesComeInTheOrderInWhichTheyWereSent) {
  StripeArrivals arrivals(kWindow);
  EXPECT_EQ(arrivals.take(1, Bytes(3)), "");
  EXPECT_FALSE(arrivals.next());
  EXPECT_TRUE(arrivals.has_gap());
  EXPECT_EQ(arrivals.take(0, Bytes(2)), "");
  EXPECT_EQ(arrivals.next()->size(), 2);
  EXPECT_EQ(arrivals.next()->size(), 3);
  EXPECT_FALSE(arrivals.next());
  EXPECT_EQ(arrivals.count(), 2);
}

TEST(StripeArrivalsTest, TwiceOrTooFarAheadIsWrong) {
  StripeArrivals arrivals(kWindow);
  EXPECT_EQ(arrivals.take(1, Bytes(3)), "");
  EXPECT_THAT(arrivals.take(1, Bytes(3)), testing::HasSubstr("twice"));
  EXPECT_EQ(arrivals.take(2, Bytes(kMaxFrameBytes)), "");
  EXPECT_THAT(arrivals.take(3, Bytes(kWindow)), testing::HasSubstr("while 0 is missing"));
}

TEST(StripeArrivalsTest, TheOtherSideIsToldAfterAWhileOrWhenMuchCame) {
  StripeArrivals arrivals(kWindow);
  arrivals.confirmed(kStart);
  EXPECT_EQ(arrivals.take(0, Bytes(10)), "");
  EXPECT_TRUE(arrivals.next());
  EXPECT_FALSE(arrivals.is_confirmation_due(kStart));
  EXPECT_TRUE(arrivals.is_confirmation_due(kStart + std::chrono::milliseconds(51)));
  EXPECT_EQ(arrivals.take(1, Bytes(kWindow / 8)), "");
  EXPECT_TRUE(arrivals.next());
  EXPECT_TRUE(arrivals.owes_much());
  EXPECT_TRUE(arrivals.is_confirmation_due(kStart));
  arrivals.confirmed(kStart);
  EXPECT_FALSE(arrivals.is_confirmation_due(kStart + std::chrono::seconds(1))) << "nothing came";
}

TEST(StripeFlightTest, TheWindowFillsAndEmpties) {
  StripeFlight flight(kWindow);
  EXPECT_TRUE(flight.has_room_for(2 * kWindow)) << "of one frame it takes any";
  EXPECT_EQ(flight.next_number(), 0);
  const size_t counted = flight.sent(7, kWindow - 1000, kStart);
  EXPECT_FALSE(flight.has_room_for(1000));
  EXPECT_FALSE(flight.is_low());
  EXPECT_EQ(flight.next_number(), 1);
  EXPECT_FALSE(flight.land(0, kStart));
  const auto landed = flight.land(1, kStart + std::chrono::milliseconds(100));
  ASSERT_TRUE(landed);
  EXPECT_EQ(landed->lane, 7);
  EXPECT_EQ(landed->bytes, counted);
  EXPECT_TRUE(flight.is_low());
  EXPECT_GT(flight.estimate().bytes_per_second, 0);
}

}  // namespace
}  // namespace atl::net
