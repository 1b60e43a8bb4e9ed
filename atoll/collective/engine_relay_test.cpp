// One engine alone that passes on what two others send each other.
#include <gmock/gmock.h>

#include "atoll/testing/engine_harness.h"

namespace atl::collective {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

/// "b" and "c" cannot reach each other: "a" passes on what they send each other.
class RelayingTest : public EngineTest {
 protected:
  static constexpr net::ConnectionId kBulkOfC = 200;

  RelayingTest() {
    from_coordinator(swarm::View{.header = header(),
                                 .view = 2,
                                 .members = {{0, "a", "a:1"}, {1, "b", "b:1"}, {2, "c", "c:1"}}});
    handle(net::Opened{.connection = kBulkOfC, .inbound = true, .plane = net::Plane::kBulk});
    from_c(swarm::PeerHello{.header = header(), .number = 2});
    begin();
  }
  void from_c(const swarm::Message& message) {
    handle(net::Received{.connection = kBulkOfC, .frame = swarm::encode(message)});
  }
  void open(int32_t attempt, std::vector<swarm::Relay> relays = {{1, 2, 0}}) {
    from_coordinator(swarm::OpenAttempt{.header = header(0, attempt),
                                        .count = kCount,
                                        .segment_values = 4096,
                                        .members = {0, 1, 2},
                                        .weights = {1, 1, 1},
                                        .shares = {0, 0, 1},
                                        .relays = std::move(relays)});
  }
  static swarm::Part part(int32_t from, int32_t to, int32_t attempt, uint64_t offset = 0) {
    return {.header = header(0, attempt),
            .sender = from,
            .receiver = to,
            .offset = offset,
            .total = 4016,
            .data = Bytes(1000, std::byte{7})};
  }
  std::vector<swarm::Part> relayed() {
    std::vector<swarm::Part> parts = said<swarm::Part>(transport_, kBulkOfC);
    std::erase_if(parts, [](const swarm::Part& part) { return part.sender == 0; });
    return parts;
  }
};

TEST_F(RelayingTest, WhatItPassesOnIsWhatCame) {
  open(0);
  from_b(part(1, 2, 0));
  from_b(part(1, 2, 0, 1000));
  ASSERT_EQ(relayed().size(), 2U);
  EXPECT_EQ(swarm::encode(relayed()[0]), swarm::encode(part(1, 2, 0)));
  EXPECT_EQ(swarm::encode(relayed()[1]), swarm::encode(part(1, 2, 0, 1000)));
  EXPECT_EQ(trouble(), "");
}

TEST_F(RelayingTest, WhatComesBeforeItHasHeardOfTheAttemptWaits) {
  from_b(part(1, 2, 0));
  EXPECT_TRUE(relayed().empty());
  open(0);
  EXPECT_EQ(relayed().size(), 1U);
  from_b(part(1, 2, 2));
  from_b(part(1, 2, 1));
  open(1);
  EXPECT_EQ(relayed().size(), 2U);
  open(2);
  EXPECT_EQ(relayed().size(), 3U);
  EXPECT_EQ(trouble(), "");
}

/// In the next attempt it is sent again.
TEST_F(RelayingTest, WhatIsOfAPastAttemptIsDropped) {
  transport_.room[kBulkOfC] = 0;
  open(0);
  from_b(part(1, 2, 0));
  open(1);
  from_b(part(1, 2, 0, 1000));
  from_b(part(1, 2, 1));
  transport_.room[kBulkOfC] = 100'000;
  handle(net::Writable{kBulkOfC});
  ASSERT_EQ(relayed().size(), 1U);
  EXPECT_EQ(relayed()[0].header.attempt, 1);
  EXPECT_EQ(trouble(), "");
}

TEST_F(RelayingTest, WhoSendsByAnotherWayThanTheAttemptsIsNamed) {
  open(0, {});
  from_b(part(1, 2, 0));
  EXPECT_THAT(trouble(), HasSubstr("island 'b' sent a part of round 0 from member 1 to member 2, "
                                   "which does not go that way"));
}

TEST_F(RelayingTest, WhoBringsWhatIsNotItsToPassOnIsNamed) {
  open(0);
  from_c(part(1, 0, 0));
  EXPECT_THAT(trouble(), HasSubstr("island 'c' sent a part of round 0 from member 1 to member 0, "
                                   "which does not go that way"));
}

TEST_F(RelayingTest, NothingGoesThroughTwo) {
  open(0);
  from_b(part(2, 1, 0));
  EXPECT_THAT(trouble(), HasSubstr("island 'b' sent a part of run 'r' in the name of member 2"));
}

TEST_F(RelayingTest, ItKeepsNoMoreThanARoundHas) {
  transport_.room[kBulkOfC] = 0;
  open(0);
  for (int i = 0; i < 10'000 && trouble().empty(); ++i) from_b(part(1, 2, 0));
  EXPECT_THAT(trouble(), HasSubstr("island 'b' sent member 2 more than round 0 has"));
}

/// Who waits behind it cannot know whether the relay or the maker is silent.
TEST_F(RelayingTest, WhoGivesItNothingToPassOnIsNamed) {
  open(0);
  for (int i = 0; i < 33; ++i) {
    from_coordinator(swarm::Alive{.header = header(), .quiet_ms = static_cast<uint64_t>(i) * 1000});
    engine_.tick(now_ += seconds(1));
  }
  std::vector<int32_t> down;
  for (const swarm::LinkState& link : said<swarm::LinkState>(transport_, kControl)) {
    if (!link.up) down.push_back(link.other);
  }
  EXPECT_THAT(down, ElementsAre(1)) << "nothing came of b; c has no contribution to make to b";
}

/// Its own parts to "c" go through "b", and those of "c" come so.
TEST_F(RelayingTest, WhomItReachesThroughAnotherItSendsThroughIt) {
  open(0, {{0, 2, 1}});
  while (engine_.work(now_)) {
  }
  const auto parts = said<swarm::Part>(transport_, kBulk);
  ASSERT_EQ(parts.size(), 1U) << "its contribution to the one owner";
  EXPECT_EQ(parts[0].receiver, 2);
  EXPECT_TRUE(said<swarm::Part>(transport_, kBulkOfC).empty());
  swarm::Part mean = part(2, 0, 0);
  mean.kind = swarm::PartKind::kMean;
  from_b(mean);
  EXPECT_EQ(trouble(), "");
  from_c(mean);
  EXPECT_THAT(trouble(), HasSubstr("island 'c' sent a part of round 0 from member 2 to member 0, "
                                   "which does not go that way"));
}

}  // namespace
}  // namespace atl::collective
