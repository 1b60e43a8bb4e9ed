#include "atoll/coordinator/run_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/chain/wire.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Time kStart{};

/// What became of one event.
struct Outcome {
  explicit Outcome(RunRouter::Actions actions) {
    for (auto& action : actions) {
      if (auto* deliver = std::get_if<RunRouter::Deliver>(&action)) {
        delivered.push_back(std::move(*deliver));
      } else if (auto* reply = std::get_if<RunRouter::Reply>(&action)) {
        replies.push_back(reply->num_bytes);
      } else if (auto* send = std::get_if<RunRouter::Send>(&action)) {
        EXPECT_EQ(std::get<Refused>(send->message).header, Header{});
        refusals[send->to] = std::get<Refused>(send->message).reason;
      } else if (auto* refuse = std::get_if<RunRouter::RefuseChain>(&action)) {
        refusals[refuse->to] = refuse->message.reason;
      } else if (auto* close = std::get_if<RunRouter::Close>(&action)) {
        closed.push_back(close->connection);
      }
    }
    for (const auto& [connection, reason] : refusals) {
      EXPECT_THAT(closed, testing::Contains(connection)) << reason;
    }
  }
  bool is_nothing() const {
    return delivered.empty() && refusals.empty() && closed.empty() && replies.empty();
  }

  std::vector<RunRouter::Deliver> delivered;
  std::map<uint64_t, std::string> refusals;
  std::vector<uint64_t> closed;
  std::vector<size_t> replies;  // To probes: their sizes.
};

class RunRouterTest : public testing::Test {
 protected:
  Outcome open(uint64_t connection, net::Plane plane = net::Plane::kControl) {
    const std::string remote = "10.0.0." + std::to_string(connection) + ":4000";
    return Outcome(router.handle(net::Opened{connection, true, plane, remote}, now));
  }
  Outcome say(uint64_t connection, const Message& message) {
    return say(connection, encode(message));
  }
  Outcome say(uint64_t connection, Bytes frame) {
    return Outcome(router.handle(net::Received{connection, std::move(frame)}, now));
  }
  Outcome lose(uint64_t connection) {
    return Outcome(router.handle(net::Lost{connection, "gone", false}, now));
  }
  /// A new connection's first word.
  Outcome first(uint64_t connection, const Message& message) {
    EXPECT_TRUE(open(connection).is_nothing());
    return say(connection, message);
  }
  /// The run that it was given to: both that it opened and what it said.
  static void expect_run(const Outcome& outcome, size_t run) {
    ASSERT_EQ(outcome.delivered.size(), 2u);
    EXPECT_TRUE(std::holds_alternative<net::Opened>(outcome.delivered[0].event));
    EXPECT_TRUE(std::holds_alternative<net::Received>(outcome.delivered[1].event));
    for (const auto& deliver : outcome.delivered) EXPECT_EQ(deliver.run, run);
    EXPECT_TRUE(outcome.refusals.empty() && outcome.closed.empty());
  }
  /// No run has heard of it; it was told why.
  static std::string refusal(const Outcome& outcome) {
    EXPECT_TRUE(outcome.delivered.empty());
    EXPECT_EQ(outcome.refusals.size(), 1u);
    return outcome.refusals.empty() ? "" : outcome.refusals.begin()->second;
  }
  static Hello hello(const std::string& run) {
    return {.header = {.run = run}, .version = "0.1.0", .name = "i", .address = "i:1"};
  }
  static Resume resume(const std::string& id) {
    return {.header = {.run = id, .term = 3}, .number = 2, .name = "i", .address = "i:1"};
  }

  Time now = kStart;
  RunRouter router{{{.name = "a", .id = "id-a"}, {.name = "b", .id = "id-b"}}};
};

TEST_F(RunRouterTest, HelloIsRoutedByNameAndAllThatFollowsToo) {
  expect_run(first(1, hello("b")), 1);
  expect_run(first(2, hello("a")), 0);
  // Whatever it says later, and of whom: that is for its own run to judge.
  const Outcome more = say(1, hello("a"));
  ASSERT_EQ(more.delivered.size(), 1u);
  EXPECT_EQ(more.delivered[0].run, 1u);
  const Outcome garbage = say(2, Bytes(20));
  ASSERT_EQ(garbage.delivered.size(), 1u);
  EXPECT_EQ(garbage.delivered[0].run, 0u);
  const Outcome lost = lose(1);
  ASSERT_EQ(lost.delivered.size(), 1u);
  EXPECT_EQ(lost.delivered[0].run, 1u);
  EXPECT_TRUE(lose(1).delivered.empty());
}

TEST_F(RunRouterTest, ResumeIsRoutedByIdNeverByName) {
  expect_run(first(1, resume("id-b")), 1);
  EXPECT_THAT(refusal(first(2, resume("b"))), HasSubstr("must join again"));
  EXPECT_THAT(refusal(first(3, hello("id-b"))), HasSubstr("no run 'id-b'"));
  EXPECT_THAT(refusal(first(4, resume(""))), HasSubstr("must join again"));
}

TEST_F(RunRouterTest, WhoNamesNoRunOfSeveralIsToldTheirNames) {
  const std::string none = refusal(first(1, hello("")));
  EXPECT_THAT(none, HasSubstr("several runs"));
  EXPECT_THAT(none, HasSubstr("a, b"));
  const std::string unknown = refusal(first(2, hello("c\n")));
  EXPECT_THAT(unknown, HasSubstr("no run 'c?'"));
  EXPECT_THAT(unknown, HasSubstr("a, b"));
}

TEST_F(RunRouterTest, TheOnlyRunNeedsNoName) {
  router = RunRouter(std::vector<RunRouter::Run>{{.name = "a", .id = "id-a"}});
  expect_run(first(1, hello("")), 0);
  expect_run(first(2, hello("a")), 0);
  EXPECT_THAT(refusal(first(3, hello("b"))), HasSubstr("no run 'b', but a"));
  router = RunRouter(std::vector<RunRouter::Run>{{.name = "", .id = "id-a"}});
  expect_run(first(4, hello("")), 0);
  EXPECT_THAT(refusal(first(5, hello("b"))), HasSubstr("no run 'b', but one without a name"));
}

/// Of encrypted runs: who comes has a certificate.
struct EncryptedRunsTest : RunRouterTest {
  EncryptedRunsTest() {
    router = RunRouter(
        std::vector<RunRouter::Run>{{.name = "a", .id = "id-a", .authority = "authority-a"},
                                    {.name = "b", .id = "id-b", .authority = "authority-b"}});
  }
  Outcome first_of(const std::string& authority, uint64_t connection, const Message& message,
                   identity::Role role = identity::Role::kIsland) {
    net::Opened opened{.connection = connection, .inbound = true, .run = authority};
    opened.certificate.emplace().peer = {.run = authority, .role = role, .name = "i"};
    EXPECT_TRUE(Outcome(router.handle(std::move(opened), now)).is_nothing());
    return say(connection, message);
  }
};

TEST_F(EncryptedRunsTest, ACertificateSaysWhichRun) {
  expect_run(first_of("authority-b", 1, hello("")), 1);
  expect_run(first_of("authority-b", 2, hello("b")), 1);
  expect_run(first_of("authority-a", 3, resume("id-a")), 0);
  RelayHello relay{.name = "i", .address = "i:1"};
  expect_run(first_of("authority-a", 4, relay, identity::Role::kRelay), 0);
}

TEST_F(EncryptedRunsTest, ACertificateOfOneRunNeverSpeaksForAnother) {
  const std::string wrong = refusal(first_of("authority-b", 1, hello("a")));
  EXPECT_EQ(wrong, "this coordinator has no run 'a', but b");
  EXPECT_THAT(refusal(first_of("authority-b", 2, resume("id-a"))), HasSubstr("must join again"));
  RelayHello relay{.header = {.run = "a"}, .name = "i", .address = "i:1"};
  EXPECT_THAT(refusal(first_of("authority-b", 3, relay, identity::Role::kRelay)),
              HasSubstr("no run 'a', but b"));
  EXPECT_THAT(refusal(first_of("authority-c", 4, hello("a"))), HasSubstr("no run 'a'"));
  EXPECT_THAT(refusal(first(5, hello("a"))), HasSubstr("no run 'a'"));  // In the clear.
}

TEST_F(RunRouterTest, ServersAndGatewaysGoToTheDirectoryOfTheFirstRun) {
  for (const chain::Message& word : {chain::Message(chain::Offer{}), chain::Message(chain::Watch{}),
                                     chain::Message(chain::Ping{})}) {
    static uint64_t connection = 0;
    open(++connection);
    const Outcome outcome = say(connection, chain::encode(word));
    expect_run(outcome, 0);
    for (const auto& deliver : outcome.delivered) EXPECT_TRUE(deliver.is_for_directory);
  }
  // Whatever it says later, and that it is lost.
  EXPECT_TRUE(say(1, hello("b")).delivered.at(0).is_for_directory);
  EXPECT_TRUE(lose(1).delivered.at(0).is_for_directory);
  expect_run(first(9, hello("b")), 1);
  EXPECT_FALSE(say(9, chain::encode(chain::Ping{})).delivered.at(0).is_for_directory);
}

TEST_F(RunRouterTest, DirectoriesEndWithTheLastRun) {
  open(1);
  say(1, chain::encode(chain::Watch{}));
  EXPECT_TRUE(Outcome(router.end(0)).is_nothing());
  open(2);
  EXPECT_EQ(say(2, chain::encode(chain::Watch{})).delivered.size(), 2u);
  EXPECT_EQ(Outcome(router.end(1)).closed, (std::vector<uint64_t>{1, 2}));
}

TEST_F(EncryptedRunsTest, ADirectoryHearsServersAndGatewaysOfItsRun) {
  using identity::Role;
  const auto first_word = [&](const std::string& authority, uint64_t connection, Role role) {
    net::Opened opened{.connection = connection, .inbound = true, .run = authority};
    opened.certificate.emplace().peer = {.run = authority, .role = role, .name = "i"};
    EXPECT_TRUE(Outcome(router.handle(std::move(opened), now)).is_nothing());
    return say(connection, chain::encode(chain::Offer{}));
  };
  expect_run(first_word("authority-b", 1, Role::kServer), 1);
  expect_run(first_word("authority-a", 2, Role::kGateway), 0);
  EXPECT_EQ(refusal(first_word("authority-a", 3, Role::kIsland)),
            "its certificate is of role island, not server or gateway");
  EXPECT_THAT(refusal(first_word("authority-a", 4, Role::kRelay)), HasSubstr("relay"));
  EXPECT_EQ(first_word("authority-c", 5, Role::kServer).closed, std::vector<uint64_t>{5});
  // Nor does one of them train.
  EXPECT_THAT(refusal(first_of("authority-a", 6, hello(""), Role::kServer)),
              HasSubstr("role server, not island"));
  EXPECT_THAT(refusal(first_of("authority-a", 7, resume("id-a"), Role::kGateway)),
              HasSubstr("role gateway, not island"));
}

TEST_F(RunRouterTest, StrangersAreHeardOfByNoRun) {
  EXPECT_THAT(refusal(first(1, Heartbeat{.header = {.run = "id-a"}})), HasSubstr("Hello first"));
  open(2);
  EXPECT_THAT(refusal(say(2, Bytes(20))), HasSubstr("not a message"));
  EXPECT_TRUE(
      say(2, hello("a")).is_nothing());  // It was on its way when the connection was closed.
  const Outcome bulk = open(3, net::Plane::kBulk);
  EXPECT_EQ(bulk.closed, std::vector<uint64_t>{3});
  for (const uint64_t connection : {1, 2, 3}) EXPECT_TRUE(lose(connection).is_nothing());
  EXPECT_TRUE(router.is_drained());
}

TEST_F(RunRouterTest, WhoSaysNothingIsClosedInTime) {
  EXPECT_EQ(router.next_deadline(), Time::max());
  open(1);
  now += std::chrono::seconds(4);
  open(2);
  first(3, hello("a"));
  EXPECT_EQ(router.next_deadline(), kStart + std::chrono::seconds(10));
  now = kStart + std::chrono::seconds(10);
  const Outcome timeout(router.tick(now));
  EXPECT_EQ(timeout.closed, std::vector<uint64_t>{1});
  EXPECT_THAT(refusal(timeout), HasSubstr("in time"));
  EXPECT_EQ(router.next_deadline(), kStart + std::chrono::seconds(14));
  EXPECT_FALSE(router.is_drained());
}

TEST_F(RunRouterTest, StrangersAreBounded) {
  uint64_t connection = 0;
  while (open(++connection).closed.empty()) ASSERT_LT(connection, 2000u);
  expect_run(say(1, hello("a")), 0);  // Its word makes room.
  EXPECT_TRUE(open(connection + 1).is_nothing());
}

TEST_F(RunRouterTest, WhoMeasuresItsLineIsAnsweredHere) {
  const auto probe = [](uint64_t reply_bytes, size_t bytes) {
    return Probe{.reply_bytes = reply_bytes, .data = Bytes(bytes)};
  };
  const Outcome answered = first(1, probe(7, 3));
  EXPECT_EQ(answered.replies, std::vector<size_t>{7});
  EXPECT_TRUE(answered.delivered.empty() && answered.closed.empty());
  EXPECT_EQ(say(1, probe(0, 1000)).replies, std::vector<size_t>{0});
  // It says nothing else.
  EXPECT_THAT(refusal(say(1, hello("a"))), HasSubstr("nothing else"));
  // What was on its way is not looked at, and not answered.
  EXPECT_TRUE(say(1, probe(7, 3)).is_nothing());
  EXPECT_THAT(refusal(first(2, probe(kMaxProbeBytes + 1, 0))), HasSubstr("more than 256 KiB"));
  EXPECT_THAT(refusal(first(3, probe(~uint64_t{0}, 0))), HasSubstr("more than 256 KiB"));
  EXPECT_THAT(refusal(first(4, probe(0, kMaxProbeBytes + 1))), HasSubstr("more than 256 KiB"));
  first(5, probe(0, 0));
  EXPECT_THAT(refusal(say(5, Bytes(20))), HasSubstr("nothing else"));
  first(6, probe(0, 0));
  EXPECT_THAT(refusal(say(6, probe(0, kMaxProbeBytes + 2000))), HasSubstr("nothing else"));
  first(7, probe(0, 0));
  EXPECT_TRUE(lose(7).is_nothing());
  for (const uint64_t connection : {1, 2, 3, 4, 5, 6}) lose(connection);
  EXPECT_TRUE(router.is_drained());
}

TEST_F(RunRouterTest, MeasuringEndsInTime) {
  for (uint64_t connection = 1; connection <= Probers::kMaxProbers; ++connection) {
    EXPECT_EQ(first(connection, Probe{}).replies.size(), 1u);
  }
  EXPECT_THAT(refusal(first(20, Probe{})), HasSubstr("others are measuring"));
  EXPECT_EQ(router.next_deadline(), kStart + Probers::kSilence);
  now = kStart + Probers::kSilence;
  EXPECT_EQ(Outcome(router.tick(now)).refusals.size(), Probers::kMaxProbers);
  EXPECT_EQ(first(21, Probe{}).replies.size(), 1u);
  router.end(0);
  EXPECT_EQ(Outcome(router.end(1)).closed, std::vector<uint64_t>{21});
}

TEST_F(RunRouterTest, WhoMeasuresForLongMakesWay) {
  for (uint64_t connection = 1; connection <= Probers::kMaxProbers; ++connection) {
    first(connection, Probe{});
    now += std::chrono::seconds(1);
  }
  while (now < kStart + Probers::kTurn) {
    for (uint64_t connection = 1; connection <= Probers::kMaxProbers; ++connection) {
      say(connection, Probe{});
    }
    now += std::chrono::seconds(1);
  }
  const Outcome another = first(20, Probe{});
  EXPECT_EQ(another.replies.size(), 1u);
  EXPECT_EQ(another.closed, std::vector<uint64_t>{1});
  EXPECT_THAT(refusal(another), HasSubstr("others wait"));
}

TEST_F(RunRouterTest, AnEndedRunTellsSoAndTheOtherGoesOn) {
  first(1, hello("a"));
  first(2, hello("b"));
  EXPECT_TRUE(Outcome(router.end(0)).is_nothing());
  EXPECT_THAT(refusal(first(3, hello("a"))), HasSubstr("'a' is over"));
  EXPECT_THAT(refusal(first(4, resume("id-a"))), HasSubstr("'a' is over"));
  EXPECT_THAT(refusal(first(5, hello("c"))), Not(HasSubstr("a, b")));
  EXPECT_EQ(lose(1).delivered.at(0).run, 0u);
  expect_run(first(6, resume("id-b")), 1);
  EXPECT_FALSE(router.is_over());
  open(7);
  // A coordinator that is started again is what they want, and will wait for.
  EXPECT_EQ(Outcome(router.end(1)).closed, std::vector<uint64_t>{7});
  EXPECT_TRUE(router.is_over());
  const Outcome late = open(8);
  EXPECT_EQ(late.closed, std::vector<uint64_t>{8});
  EXPECT_TRUE(late.refusals.empty());
}

TEST_F(RunRouterTest, AnAbandonedRunIsSilent) {
  first(1, hello("a"));
  first(2, hello("b"));
  EXPECT_EQ(Outcome(router.abandon(0)).closed, std::vector<uint64_t>{1});
  EXPECT_TRUE(say(1, Heartbeat{.header = {.run = "id-a"}}).is_nothing());
  EXPECT_TRUE(lose(1).is_nothing());
  for (const Message& word : {Message(hello("a")), Message(resume("id-a"))}) {
    static uint64_t connection = 10;
    const Outcome outcome = first(++connection, word);
    EXPECT_EQ(outcome.closed, std::vector<uint64_t>{connection});
    EXPECT_TRUE(outcome.refusals.empty() && outcome.delivered.empty());
  }
  EXPECT_EQ(say(2, Heartbeat{.header = {.run = "id-b"}}).delivered.at(0).run, 1u);
}

TEST(RunRouterNamesTest, MustTellTheRunsApart) {
  const auto message_of = [](std::vector<RunRouter::Run> runs) -> std::string {
    try {
      RunRouter router(std::move(runs));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of({{"a", "1"}, {"a", "2"}}), HasSubstr("two runs are called 'a'"));
  EXPECT_THAT(message_of({{"a", "1"}, {"b", "1"}}), HasSubstr("'a' and 'b' are one run"));
  EXPECT_THAT(message_of({{"a", "1"}, {"", "2"}}), HasSubstr("letters"));
  EXPECT_THAT(message_of({{"a", "1"}, {"b c", "2"}}), HasSubstr("'b c'"));
  EXPECT_THAT(message_of({{"a", "1", "x"}, {"b", "2", "x"}}), HasSubstr("have one authority"));
  EXPECT_EQ(message_of({{"a", "1", "x"}, {"b", "2", "y"}}), "");
  EXPECT_EQ(message_of({{"", "1"}}), "");
}

}  // namespace
}  // namespace atl::swarm
