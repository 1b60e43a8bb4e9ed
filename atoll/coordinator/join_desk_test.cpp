#include "atoll/coordinator/join_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::swarm {
namespace {

using std::chrono::seconds;

struct JoinDeskTest : testing::Test {
  static net::Opened caller(net::ConnectionId connection) {
    return {.connection = connection,
            .inbound = true,
            .plane = net::Plane::kJoin,
            .remote = "192.0.2.1:5000",
            .run = "ours"};
  }
  static Bytes bytes_of(std::string_view text) {
    const auto bytes = as_byte_span(text);
    return {bytes.begin(), bytes.end()};
  }

  std::vector<std::string> asked;
  JoinDesk desk{
      [this](const std::string& run, std::string_view request, const identity::Caller& from) {
        asked.push_back(from.address + " " + run + ": " + std::string(request));
        return "reply to " + std::string(request);
      }};
  Time now{};
};

TEST_F(JoinDeskTest, AQuestionIsAnsweredOnceAndTheConnectionEnds) {
  EXPECT_TRUE(desk.handle(caller(1), now));
  EXPECT_TRUE(desk.take_last_words().empty());
  EXPECT_TRUE(desk.handle(net::Received{1, bytes_of("me")}, now));
  EXPECT_TRUE(desk.handle(net::Received{1, bytes_of("me too")}, now));
  EXPECT_THAT(asked, testing::ElementsAre("192.0.2.1 ours: me"));
  const auto words = desk.take_last_words();
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].connection, 1U);
  EXPECT_EQ(words[0].frame, bytes_of("reply to me"));
  EXPECT_TRUE(desk.handle(net::Lost{1, "closed"}, now));
  EXPECT_FALSE(desk.handle(net::Received{1, bytes_of("late")}, now));
}

TEST_F(JoinDeskTest, OtherConnectionsAreNoneOfItsBusiness) {
  EXPECT_FALSE(desk.handle(net::Opened{.connection = 2}, now));
  EXPECT_FALSE(desk.handle(net::Received{2, {}}, now));
  EXPECT_FALSE(desk.handle(net::Lost{2, ""}, now));
}

TEST_F(JoinDeskTest, OneAddressGetsAFewPlaces) {
  for (net::ConnectionId one = 1; one <= 6; ++one) desk.handle(caller(one), now);
  const auto words = desk.take_last_words();
  ASSERT_EQ(words.size(), 2U);
  EXPECT_EQ(words[0].connection, 5U);
  EXPECT_EQ(words[1].connection, 6U);
}

TEST_F(JoinDeskTest, SilenceEndsAndACrowdKeepsNobodyOut) {
  const auto from = [&](net::ConnectionId connection, int group) {
    net::Opened opened = caller(connection);
    opened.remote = "192.0.2." + std::to_string(group) + ":5000";
    desk.handle(opened, now);
  };
  net::ConnectionId last = 0;
  for (int group = 0; group < 16; ++group) {
    for (int i = 0; i < 4; ++i) from(++last, group);
  }
  EXPECT_TRUE(desk.take_last_words().empty());
  from(101, 77);
  const auto words = desk.take_last_words();
  ASSERT_EQ(words.size(), 1U);
  EXPECT_EQ(words[0].connection, 1U);  // Who has waited longest.
  EXPECT_TRUE(words[0].frame.empty());
  net::Opened member = caller(102);
  member.certificate.emplace();
  desk.handle(member, now);
  EXPECT_TRUE(desk.take_last_words().empty());
  desk.tick(now + seconds(9));
  EXPECT_TRUE(desk.take_last_words().empty());
  desk.tick(now + seconds(10));
  EXPECT_EQ(desk.take_last_words().size(), JoinDesk::kMost + 1);
  desk.tick(now + seconds(20));
  EXPECT_TRUE(desk.take_last_words().empty());
}

}  // namespace
}  // namespace atl::swarm
