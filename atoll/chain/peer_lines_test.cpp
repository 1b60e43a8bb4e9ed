#include "atoll/chain/peer_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace atl::chain {
namespace {

using testing::ElementsAre;

/// Takes nothing.
class Stuck final : public net::Transport {
 public:
  Result<std::string> listen(const std::string& address) override { return address; }
  net::ConnectionId connect(const std::string& /*address*/, net::Plane) override { return 0; }
  net::ConnectionId meet(const net::Meeting&, net::Plane) override { return 0; }
  net::Sent send(net::ConnectionId connection, Bytes /*frame*/) override {
    ++tries[connection];
    return takes ? net::Sent::kAccepted : net::Sent::kFull;
  }
  void close(net::ConnectionId connection) override { closed.push_back(connection); }
  net::Traffic traffic() const override { return {}; }

  bool takes = false;
  std::map<net::ConnectionId, int> tries;
  std::vector<net::ConnectionId> closed;
};

constexpr size_t kFrames = 6;
constexpr size_t kLarge = kFrames * net::kMaxFrameBytes;

struct PeerLinesTest : testing::Test {
  /// kLarge, but for a few bytes.
  void send(net::ConnectionId line) {
    for (size_t i = 0; i < kFrames; ++i) {
      lines.send(line, Piece{.model = "m", .bytes = Bytes(net::kMaxFrameBytes - 64)});
    }
  }

  Stuck transport;
  PeerLines lines{transport, ""};
};

TEST_F(PeerLinesTest, WhoTakesNothingIsGivenUp) {
  for (int i = 0; i < 2; ++i) send(1);
  EXPECT_THAT(transport.closed, ElementsAre());
  send(1);
  EXPECT_THAT(transport.closed, ElementsAre(1U));
}

TEST_F(PeerLinesTest, AMessageThatNoFrameHoldsEndsItsLineAlone) {
  lines.send(1, Piece{.model = "m", .bytes = Bytes(net::kMaxFrameBytes)});
  EXPECT_THAT(transport.closed, ElementsAre(1U));
  EXPECT_EQ(transport.tries[1], 0);
  send(2);
  EXPECT_THAT(transport.closed, ElementsAre(1U));
}

TEST_F(PeerLinesTest, WhatWaitsForAllTogetherHasABound) {
  static_assert(10 * kLarge < PeerLines::kMaxQueuedBytesOfAll);
  static_assert(11 * kLarge > PeerLines::kMaxQueuedBytesOfAll);
  for (net::ConnectionId line = 1; line < 10; ++line) send(line);
  send(3);
  lines.note(net::Lost{1, "gone"});  // What waited for it counts no more.
  send(10);
  EXPECT_THAT(transport.closed, ElementsAre());
  send(11);
  EXPECT_THAT(transport.closed, ElementsAre(3U));  // Most waited for it.
  transport.takes = true;
  for (net::ConnectionId line = 2; line < 12; ++line) lines.note(net::Writable{line});
  EXPECT_EQ(transport.tries[3], 1);
  EXPECT_EQ(transport.tries[11], 1 + kFrames);
  transport.takes = false;
  for (net::ConnectionId line = 12; line < 22; ++line) send(line);
  EXPECT_THAT(transport.closed, ElementsAre(3U));
}

TEST_F(PeerLinesTest, WhatIsSentPatientlyGoesAsTheLineDrainsHoweverMuchItIs) {
  constexpr size_t kMany = PeerLines::kMaxQueuedBytesOfAll / net::kMaxFrameBytes + 2;
  const Piece piece{.model = "m", .bytes = Bytes(net::kMaxFrameBytes - 64)};
  for (size_t i = 0; i < kMany; ++i) lines.send_patiently(1, piece);
  send(1);  // Has its own bound.
  EXPECT_THAT(transport.closed, ElementsAre());
  EXPECT_GT(lines.num_patient(1), PeerLines::kMaxQueuedBytesOfAll);
  transport.takes = true;
  lines.note(net::Writable{1});
  EXPECT_EQ(transport.tries[1], 1 + static_cast<int>(kMany + kFrames));
  EXPECT_EQ(lines.num_patient(1), 0U);
}

TEST_F(PeerLinesTest, ALineStallsThatTakesNothingForLong) {
  const Time now{std::chrono::hours(1)};
  const Time late = now + PeerLines::kStall + std::chrono::seconds(1);
  EXPECT_FALSE(lines.has_stalled(1, now));
  lines.send_patiently(1, Piece{.model = "m", .bytes = Bytes(9)});
  EXPECT_FALSE(lines.has_stalled(1, now));
  EXPECT_FALSE(lines.has_stalled(1, now + PeerLines::kStall));
  EXPECT_TRUE(lines.has_stalled(1, late));
  lines.send_patiently(1, Piece{.model = "m", .bytes = Bytes(9)});
  EXPECT_FALSE(lines.has_stalled(1, late));  // Something has changed.
  transport.takes = true;
  lines.note(net::Writable{1});
  EXPECT_FALSE(lines.has_stalled(1, late + 2 * PeerLines::kStall));
}

}  // namespace
}  // namespace atl::chain
