#include "atoll/collective/links.h"

#include <gtest/gtest.h>

#include "atoll/collective/visitors.h"
#include "atoll/testing/sent_frames.h"

namespace atl::collective {
namespace {

using std::chrono::seconds;
using Numbers = std::vector<int32_t>;

/// Member 1 of 0, 1 and 2: it dials 0, and 2 dials it.
class LinksTest : public testing::Test {
 protected:
  static constexpr net::ConnectionId kTo0 = 1;  // The first that it dials.
  static constexpr net::ConnectionId kTo2 = 100;

  LinksTest() {
    const Links::Changes changes = links_.view(members_, 1, now_);
    EXPECT_EQ(changes.to_dial, Numbers{0});
    EXPECT_TRUE(links_.dial(0, {}));
    EXPECT_TRUE(links_.opened(kTo0, net::Way::kDirect, now_));
    links_.accept(2, kTo2, net::Way::kDirect, now_);
  }
  static Transfer transfer(size_t size, int64_t round = 0) {
    return {.part = {.header = {.round = round}, .total = size},
            .blob = std::make_shared<const Bytes>(size),
            .end = size};
  }
  std::vector<swarm::Part> parts_to(net::ConnectionId connection) const {
    return said<swarm::Part>(transport_, connection);
  }
  size_t bytes_to(net::ConnectionId connection) const {
    size_t bytes = 0;
    for (const auto& part : parts_to(connection)) bytes += part.data.size();
    return bytes;
  }

  Time now_{seconds(1)};
  std::vector<swarm::Peer> members_ = {{0, "a", "a:1"}, {1, "b", "b:1"}, {2, "c", "c:1"}};
  SentFrames transport_;
  int64_t bytes_counted_ = 0;
  Links links_{transport_, [this](int64_t, size_t frame_bytes, Time) {
                 bytes_counted_ += static_cast<int64_t>(frame_bytes);
               }};
};

TEST_F(LinksTest, TransfersGoInTheirOrderChunkByChunk) {
  links_.post(0, transfer(100'000, 7), now_);
  links_.post(0, transfer(10, 8), now_);
  const auto parts = parts_to(kTo0);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].offset, 0U);
  EXPECT_EQ(parts[1].offset, parts[0].data.size());
  EXPECT_EQ(parts[1].offset + parts[1].data.size(), 100'000U);
  EXPECT_EQ(parts[2].header.round, 8);
  EXPECT_GT(bytes_counted_, 100'010);
}

TEST_F(LinksTest, WhatDoesNotFitWaitsUntilThereIsRoom) {
  transport_.room[kTo0] = 0;
  links_.post(0, transfer(Links::kMaxWaitingBytes + 1), now_);
  EXPECT_EQ(links_.find(0)->waiting_bytes, Links::kMaxWaitingBytes + 1);
  EXPECT_FALSE(links_.has_room());
  transport_.room.clear();
  links_.pump(0, now_);
  EXPECT_EQ(bytes_to(kTo0), 0U) << "the transport has not said so";
  links_.writable(kTo0, now_);
  EXPECT_EQ(bytes_to(kTo0), Links::kMaxWaitingBytes + 1);
  EXPECT_EQ(links_.find(0)->waiting_bytes, 0U);
  EXPECT_TRUE(links_.has_room());
}

TEST_F(LinksTest, VoidTransfersAreNotSent) {
  transport_.room[kTo0] = 0;
  links_.post(0, transfer(10, 7), now_);
  links_.post(0, transfer(20, 8), now_);
  links_.drop_transfers(7, [](const Transfer&) { return true; });
  links_.drop_transfers(8, [](const Transfer&) { return false; });
  EXPECT_EQ(links_.find(0)->waiting_bytes, 20U);
}

/// Of all connections together: they share the line.
TEST_F(LinksTest, WhileRoundsWaitOneByteInEightIsLent) {
  constexpr size_t kMiB = size_t{1} << 20;
  transport_.room[kTo0] = 0;
  links_.post(0, transfer(16 * kMiB), now_);
  links_.lend(2, transfer(16 * kMiB), now_);
  EXPECT_TRUE(links_.lends());
  EXPECT_EQ(bytes_to(kTo2), 0U);
  while (bytes_to(kTo0) < 8 * kMiB) {
    transport_.room[kTo0] = 100'000;
    links_.writable(kTo0, now_);
  }
  const double share = static_cast<double>(bytes_to(kTo0)) / (LendingShare::kOneIn - 1);
  EXPECT_NEAR(static_cast<double>(bytes_to(kTo2)), share, static_cast<double>(size_t{256} << 10));
  links_.drop_transfers(0, [](const Transfer&) { return true; });
  links_.lend_some(now_);
  EXPECT_EQ(bytes_to(kTo2), 16 * kMiB) << "what no round needs is lent";
  EXPECT_FALSE(links_.lends());
}

TEST_F(LinksTest, ALossIsReportedOnceAndALittleLater) {
  links_.drop(2, "reset", now_);
  EXPECT_TRUE(links_.find(2)->is_lost());
  EXPECT_EQ(transport_.closed, std::vector<net::ConnectionId>{kTo2});
  EXPECT_EQ(links_.take_verdict(2, now_), std::nullopt);
  EXPECT_EQ(links_.due(), now_ + Links::kVerdictGrace);
  EXPECT_EQ(links_.take_verdict(2, now_ + Links::kVerdictGrace), "the connection was lost: reset");
  EXPECT_EQ(links_.take_verdict(2, now_ + seconds(1)), std::nullopt);
  EXPECT_EQ(links_.due(), now_ + Links::kTheirTurn) << "the other one dials";
}

TEST_F(LinksTest, ALinkThatIsBackCarriesNothingUntilThatIsReported) {
  links_.drop(2, "reset", now_);
  links_.accept(2, kTo2, net::Way::kDirect, now_);
  EXPECT_FALSE(links_.take_return(2)) << "the coordinator does not know of the loss";
  EXPECT_TRUE(links_.take_verdict(2, now_ + seconds(1)));
  links_.post(2, transfer(10), now_);
  EXPECT_EQ(bytes_to(kTo2), 0U);
  EXPECT_TRUE(links_.take_return(2));
  EXPECT_FALSE(links_.take_return(2));
  links_.pump(2, now_);
  EXPECT_EQ(bytes_to(kTo2), 10U);
}

TEST_F(LinksTest, WhatWasToGoOverALostLinkIsDropped) {
  transport_.room[kTo0] = 0;
  links_.post(0, transfer(10), now_);
  links_.lend(0, transfer(10), now_);
  EXPECT_EQ(links_.take_lost(kTo0), 0);
  links_.drop(0, "reset", now_);
  EXPECT_TRUE(transport_.closed.empty()) << "it was gone already";
  EXPECT_EQ(links_.find(0)->waiting_bytes, 0U);
  EXPECT_FALSE(links_.lends());
}

TEST_F(LinksTest, OneOfTwoDialsWithGrowingPauses) {
  Time now = now_;
  for (const Duration pause : {Backoff::kFirstPause, 2 * Backoff::kFirstPause}) {
    links_.drop(0, "reset", now);
    EXPECT_FALSE(links_.is_dial_due(0, now));
    EXPECT_TRUE(links_.is_dial_due(0, now += pause));
    EXPECT_TRUE(links_.dial(0, {}));
    EXPECT_FALSE(links_.is_dial_due(0, now + seconds(100)));
  }
  links_.drop(2, "reset", now);
  EXPECT_FALSE(links_.is_dial_due(2, now + Links::kTheirTurn - seconds(1)));
  EXPECT_TRUE(links_.is_dial_due(2, now + Links::kTheirTurn)) << "it did not come through";
  links_.accept(2, kTo2, net::Way::kDirect, now);
  EXPECT_FALSE(links_.is_dial_due(2, now + seconds(100)));
  transport_.is_closed = true;
  EXPECT_FALSE(links_.dial(0, {}));
}

TEST_F(LinksTest, AViewClosesWhatIsOfNoMember) {
  members_.pop_back();
  members_.push_back({3, "d", "d:1"});
  const Links::Changes changes = links_.view(members_, 1, now_);
  EXPECT_EQ(changes.gone, Numbers{2});
  EXPECT_TRUE(changes.to_dial.empty());
  EXPECT_EQ(transport_.closed, std::vector<net::ConnectionId>{kTo2});
  EXPECT_TRUE(links_.contains(3));
  EXPECT_FALSE(links_.opened(kTo2, net::Way::kDirect, now_));
}

TEST_F(LinksTest, WhoCameBackElsewhereIsTriedBeforeItIsReported) {
  links_.drop(0, "reset", now_);
  EXPECT_TRUE(links_.take_verdict(0, now_ += seconds(1)));
  members_[0].address = "a:2";
  EXPECT_EQ(links_.view(members_, 1, now_).to_dial, Numbers{0});
  EXPECT_FALSE(links_.take_verdict(0, now_ += seconds(1)));
  EXPECT_TRUE(links_.dial(0, {}));
  EXPECT_FALSE(links_.take_verdict(0, now_));
}

/// A coordinator may hear of the loss after it heard of the next process.
TEST_F(LinksTest, WhoWasReportedAndCameBackElsewhereIsReportedWhenItIsReached) {
  links_.drop(0, "reset", now_);
  EXPECT_TRUE(links_.take_verdict(0, now_ += seconds(1)));
  members_[0].address = "a:2";
  links_.view(members_, 1, now_);
  links_.view(members_, 1, now_);
  EXPECT_FALSE(links_.find(0)->is_lost());
  EXPECT_TRUE(links_.dial(0, {}));
  EXPECT_FALSE(links_.take_return(0));
  EXPECT_TRUE(links_.opened(kTo0 + 1, net::Way::kDirect, now_));
  EXPECT_TRUE(links_.take_return(0));
  EXPECT_FALSE(links_.take_return(0));
}

TEST_F(LinksTest, ADialToWhereAMemberWasIsGivenUp) {
  links_.drop(0, "reset", now_);
  EXPECT_TRUE(links_.dial(0, {}));
  members_[0].address = "a:2";
  EXPECT_EQ(links_.view(members_, 1, now_).to_dial, Numbers{0});
  EXPECT_EQ(transport_.closed, (std::vector<net::ConnectionId>{kTo0, kTo0 + 1}));
  EXPECT_FALSE(links_.take_lost(kTo0 + 1));
  EXPECT_FALSE(links_.take_verdict(0, now_ += seconds(1)));
}

/// The coordinator that a loss was told may have died with it.
TEST_F(LinksTest, ANewViewHasLossesReportedAgain) {
  links_.drop(2, "reset", now_);
  EXPECT_TRUE(links_.take_verdict(2, now_ + seconds(1)));
  links_.view(members_, 1, now_ + seconds(2));
  EXPECT_TRUE(links_.take_verdict(2, now_ + seconds(2)));
}

TEST(BackoffTest, PausesGrowUntilItSucceeds) {
  const Time now{seconds(1)};
  Backoff backoff;
  EXPECT_EQ(backoff.due(), Time::max());
  backoff.failed(now);
  EXPECT_EQ(backoff.due(), now + Backoff::kFirstPause);
  for (int i = 0; i < 10; ++i) backoff.failed(now);
  EXPECT_EQ(backoff.due(), now + Backoff::kLongestPause);
  backoff.no_later_than(now + seconds(1));
  EXPECT_EQ(backoff.due(), now + seconds(1));
  backoff.tried();
  EXPECT_EQ(backoff.due(), Time::max());
  backoff.succeeded();
  backoff.failed(now);
  EXPECT_EQ(backoff.due(), now + Backoff::kFirstPause);
}

TEST(VisitorsTest, SayWhoTheyAreOnceAndThenAskForLittle) {
  const Time now{seconds(1)};
  Visitors visitors;
  ASSERT_TRUE(visitors.admit(7, {}, now));
  EXPECT_FALSE(visitors.hear(7, swarm::Fetch{})) << "who are you?";
  EXPECT_TRUE(visitors.known().empty());
  EXPECT_TRUE(visitors.hear(7, swarm::PeerHello{.number = 3}));
  EXPECT_FALSE(visitors.hear(7, swarm::PeerHello{.number = 4}));
  ASSERT_EQ(visitors.known().size(), 1U);
  EXPECT_EQ(visitors.known()[0].second.number, 3);
  for (size_t i = 0; i < Visitors::kMostEarly; ++i) {
    EXPECT_TRUE(visitors.hear(7, swarm::Fetch{.begin = i}));
  }
  EXPECT_FALSE(visitors.hear(7, swarm::Fetch{}));
  EXPECT_EQ(visitors.take(7).size(), Visitors::kMostEarly);
  EXPECT_FALSE(visitors.contains(7));
}

TEST(VisitorsTest, AreFewAndNotSilentForLong) {
  const Time now{seconds(1)};
  Visitors visitors;
  for (net::ConnectionId i = 0; i < Visitors::kMost; ++i) EXPECT_TRUE(visitors.admit(i, {}, now));
  EXPECT_FALSE(visitors.admit(Visitors::kMost, {}, now));
  EXPECT_TRUE(visitors.hear(5, swarm::PeerHello{}));
  EXPECT_TRUE(visitors.mute(now + Visitors::kPatience).empty());
  EXPECT_EQ(visitors.mute(now + Visitors::kPatience + seconds(1)).size(), Visitors::kMost - 1);
  EXPECT_EQ(visitors.take_all().size(), Visitors::kMost);
  EXPECT_FALSE(visitors.contains(5));
}

}  // namespace
}  // namespace atl::collective
