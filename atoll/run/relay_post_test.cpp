#include "atoll/run/relay_post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/swarm/wire.h"
#include "atoll/testing/sent_frames.h"

namespace atl::run {
namespace {

using testing::ElementsAre;

struct RelayPostTest : testing::Test {
  RelayPostOptions options() {
    return {.coordinator = "there:7070",
            .authority = "ours",
            .name = "meeting",
            .address = "here:7074",
            .tell = [this](const Event& event) { kinds.emplace_back(event.kind); },
            .on_revocations = [this](const Bytes& list) { lists.push_back(list); }};
  }
  void hear(net::ConnectionId connection, const swarm::Message& message) {
    post.handle(net::Received{connection, swarm::encode(message)}, now);
  }

  Time now{};
  std::vector<std::string> kinds;
  std::vector<Bytes> lists;
  collective::SentFrames transport;
  RelayPost post{options(), transport};
};

TEST_F(RelayPostTest, ItComesAsAMemberOfItsRunAndIsTakenByTheFirstView) {
  post.tick(now);
  EXPECT_THAT(transport.runs, ElementsAre("ours"));
  const auto hello = collective::said<swarm::RelayHello>(transport, 1);
  ASSERT_EQ(hello.size(), 1U);
  EXPECT_EQ(hello[0].name, "meeting");
  EXPECT_EQ(hello[0].address, "here:7074");
  EXPECT_FALSE(post.is_taken());
  hear(1, swarm::View{.revocations = Bytes(3)});
  EXPECT_TRUE(post.is_taken());
  EXPECT_THAT(lists, ElementsAre(Bytes(3)));
  hear(1, swarm::View{});
  EXPECT_THAT(kinds, ElementsAre("relay_taken"));
}

TEST_F(RelayPostTest, ALostCoordinatorIsToldOfOnceAndCalledAgainWithLongerPauses) {
  post.tick(now);
  Duration before{};
  for (net::ConnectionId connection = 1; connection < 9; ++connection) {
    post.handle(net::Lost{connection + 1, "another run's"}, now);
    post.tick(now);
    EXPECT_EQ(transport.runs.size(), connection);
    post.handle(net::Lost{connection, "gone"}, now);
    const Duration pause = post.next_deadline() - now;
    EXPECT_GE(pause, before);
    EXPECT_LE(pause, RelayPost::kLongestPause);
    before = pause;
    now = post.next_deadline();
    post.tick(now);
  }
  EXPECT_THAT(kinds, ElementsAre("coordinator_missed"));
}

TEST_F(RelayPostTest, ARunThatIsOverOrTakesNoneIsNotCalledAgain) {
  post.tick(now);
  hear(1, swarm::Refused{{}, "no more"});
  post.handle(net::Lost{1, "closed"}, now);
  EXPECT_EQ(post.refused(), "no more");
  EXPECT_EQ(post.next_deadline(), Time::max());
  RelayPost other(options(), transport);
  other.tick(now);
  other.handle(net::Received{2, swarm::encode(swarm::RunEnded{{}, "done"})}, now);
  EXPECT_EQ(other.over(), "done");
}

TEST_F(RelayPostTest, WhatIsNoMessageEndsTheConnection) {
  post.tick(now);
  post.handle(net::Received{1, Bytes(20)}, now);
  EXPECT_THAT(transport.closed, ElementsAre(1U));
  EXPECT_EQ(post.next_deadline(), now + RelayPost::kFirstPause);
}

}  // namespace
}  // namespace atl::run
