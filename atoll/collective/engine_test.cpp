// One engine alone: what the others may send it, and when.
#include <gmock/gmock.h>

#include <algorithm>

#include "atoll/testing/engine_harness.h"

namespace atl::collective {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(EngineTest, EarlyPartsWithoutDataAreRefused) {
  begin();
  from_b(part_of_b(0));
  EXPECT_THAT(trouble(), HasSubstr("island 'b' sent a part of round 0 without data"));
}

TEST_F(EngineTest, EarlyPartsCountWithWhatTheyCostBesideTheirData) {
  begin();
  size_t num_parts = 0;
  for (; trouble().empty() && num_parts < 100'000; ++num_parts) from_b(part_of_b(1));
  EXPECT_THAT(trouble(), HasSubstr("island 'b' sent more than round 0 has"));
  // Kept were at most twice what two members may send, and their slack of 1 MiB.
  EXPECT_LT(num_parts * sizeof(swarm::Part), 2 * ((size_t{1} << 20) + 4 * 4 * kCount));
}

TEST_F(EngineTest, AllThatAMemberMaySendMayComeEarly) {
  begin();
  for (int i = 0; i < 40; ++i) from_b(part_of_b(2048));  // Far more, in parts of honest sizes.
  EXPECT_EQ(trouble(), "");
}

swarm::Commit commit_of_b() {
  return {.header = {.run = "r", .term = 1, .round = 0, .attempt = 0},
          .held = {.round = 0, .step = 1},
          .count = 1000,
          .segment_values = 4096,
          .members = {1},
          .weights = {1}};
}

TEST_F(EngineTest, WhatWasCommittedWithoutItIsFetched) {
  begin();
  from_coordinator(commit_of_b());
  const auto asked = said<swarm::Fetch>(transport_, kBulk);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].kind, swarm::PartKind::kResult);
  EXPECT_TRUE(commits.empty());
  const Bytes mean(4000);
  RoundResult result{.segments = {{{kMeanKey, SharedBytes{.bytes = mean}}}}};
  const Bytes encoded = encode(result);
  from_b(swarm::Part{.header = header(0),
                     .kind = swarm::PartKind::kResult,
                     .sender = 1,
                     .total = encoded.size(),
                     .data = encoded});
  ASSERT_EQ(commits.size(), 1U);
  EXPECT_FALSE(commits[0].included);
  EXPECT_TRUE(commits[0].missed);
  EXPECT_EQ(said<swarm::CaughtUp>(transport_, kControl).size(), 1U);
  EXPECT_EQ(trouble(), "");
}

TEST_F(EngineTest, ResultThatIsNoneEndsThisMembershipAlone) {
  from_coordinator(commit_of_b());
  from_b(swarm::Part{.header = header(0),
                     .kind = swarm::PartKind::kResult,
                     .sender = 1,
                     .total = 3,
                     .data = Bytes(3)});
  EXPECT_THAT(failure, HasSubstr("the result of round 0 cannot be read"));
}

class JoiningTest : public EngineTest {
 protected:
  JoiningTest() : EngineTest(/*joins=*/true) { engine_.fetch_state(0, 100, now_); }
  void commit(uint64_t index, int64_t round) {
    swarm::Commit message = commit_of_b();
    message.header.round = message.held.round = round;
    message.index = index;
    message.held.step = round + 1;
    from_coordinator(message);
  }
  void give_state() {
    from_b(swarm::Part{.header = header(4),
                       .kind = swarm::PartKind::kState,
                       .sender = 1,
                       .total = 100,
                       .data = Bytes(100)});
  }
  std::vector<int64_t> asked(swarm::PartKind kind) const {
    std::vector<int64_t> rounds;
    for (const swarm::Fetch& fetch : said<swarm::Fetch>(transport_, kBulk)) {
      if (fetch.kind == kind) rounds.push_back(fetch.header.round);
    }
    return rounds;
  }
};

/// Rounds may be faster than its line: their results would keep the state from ever coming.
TEST_F(JoiningTest, ResultsAreAskedForBehindTheState) {
  for (int64_t round = 5; round < 8; ++round) commit(static_cast<uint64_t>(round - 5), round);
  for (int i = 0; i < 25; ++i) engine_.tick(now_ += seconds(1));
  EXPECT_EQ(failure, "");
  EXPECT_THAT(asked(swarm::PartKind::kState), ElementsAre(4));
  EXPECT_THAT(asked(swarm::PartKind::kResult), IsEmpty());
  give_state();
  ASSERT_EQ(states.size(), 1U);
  EXPECT_THAT(asked(swarm::PartKind::kResult), ElementsAre(5, 6, 7));
}

/// Its link stands and carries nothing.
TEST_F(JoiningTest, ADonorThatIsSilentIsLeftForAnother) {
  constexpr net::ConnectionId kBulkOfC = 200;
  from_coordinator(swarm::View{.header = header(),
                               .view = 2,
                               .members = {{0, "a", "a:1"}, {1, "b", "b:1"}, {2, "c", "c:1"}}});
  handle(net::Opened{.connection = kBulkOfC, .inbound = true, .plane = net::Plane::kBulk});
  handle(net::Received{.connection = kBulkOfC,
                       .frame = swarm::encode(swarm::PeerHello{.header = header(), .number = 2})});
  EXPECT_THAT(asked(swarm::PartKind::kState), ElementsAre(4)) << "of b, and all of it";
  EXPECT_THAT(said<swarm::Fetch>(transport_, kBulkOfC), IsEmpty());
  for (int i = 0; i < 32; ++i) {
    from_coordinator(swarm::Alive{.header = header()});
    engine_.tick(now_ += seconds(1));
  }
  EXPECT_EQ(said<swarm::Fetch>(transport_, kBulkOfC).size(), 1U);
  EXPECT_EQ(failure, "");
}

TEST_F(JoiningTest, ResultsThatANewerStateHasAreNotAskedFor) {
  for (int64_t round = 5; round < 8; ++round) commit(static_cast<uint64_t>(round - 5), round);
  from_b(swarm::NotHeld{.header = header(4)});
  EXPECT_THAT(asked(swarm::PartKind::kState), ElementsAre(4, 7));
  from_b(swarm::Part{.header = header(7),
                     .kind = swarm::PartKind::kState,
                     .sender = 1,
                     .total = 100,
                     .data = Bytes(100)});
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0].round, 7);
  EXPECT_THAT(asked(swarm::PartKind::kResult), IsEmpty());
}

TEST_F(EngineTest, FetchedBytesThatNobodyAskedForAreRefused) {
  from_b(swarm::Part{.header = header(0),
                     .kind = swarm::PartKind::kState,
                     .sender = 1,
                     .total = 3,
                     .data = Bytes(3)});
  EXPECT_EQ(trouble(), "") << "it may have been wanted once";
  from_coordinator(commit_of_b());
  from_b(swarm::Part{.header = header(0),
                     .kind = swarm::PartKind::kResult,
                     .sender = 1,
                     .total = size_t{1} << 40,
                     .data = Bytes(3)});
  EXPECT_THAT(trouble(), HasSubstr("is the most"));
}

TEST_F(EngineTest, WhatItDoesNotHoldItSays) {
  from_b(swarm::Fetch{.header = header(0), .kind = swarm::PartKind::kResult});
  from_b(swarm::Fetch{.header = header(0), .kind = swarm::PartKind::kState, .end = 10});
  EXPECT_EQ(said<swarm::NotHeld>(transport_, kBulk).size(), 2U);
  EXPECT_FALSE(said<swarm::NotHeld>(transport_, kBulk)[0].never) << "it may be committed yet";
}

TEST_F(EngineTest, StateIsGivenInTheRangeThatWasAsked) {
  engine_.serve_state([](int32_t, int64_t round) {
    return round == 0 ? std::make_shared<const Bytes>(200'000) : nullptr;
  });
  from_b(swarm::Fetch{.header = header(0), .begin = 100'000, .end = 200'000});
  const auto parts = said<swarm::Part>(transport_, kBulk);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].offset, 100'000U);
  EXPECT_EQ(parts[0].total, 200'000U);
  EXPECT_EQ(parts[1].offset + parts[1].data.size(), 200'000U);
  from_b(swarm::Fetch{.header = header(0), .begin = 100, .end = 200'001});
  from_b(swarm::Fetch{.header = header(0), .begin = 100, .end = 100});
  EXPECT_EQ(said<swarm::NotHeld>(transport_, kBulk).size(), 2U);
}

/// What is asked while a state is copied is answered when it is, from one copy for all.
TEST_F(EngineTest, StateIsCopiedOnceForAllWhoAsk) {
  engine_.serve_state([](int32_t, int64_t round) {
    return round < 2 ? std::make_shared<const Bytes>(1000) : nullptr;
  });
  copies_at_once = false;
  const auto ask = [&](int64_t round, uint64_t begin) {
    from_b(swarm::Fetch{.header = header(round), .begin = begin, .end = begin + 100});
  };
  ask(0, 0);
  ask(0, 500);
  ask(1, 0);
  ask(2, 0);
  EXPECT_TRUE(said<swarm::Part>(transport_, kBulk).empty());
  engine_.copied(std::exchange(copy_job, nullptr)(), now_);
  EXPECT_EQ(said<swarm::Part>(transport_, kBulk).size(), 2U);
  ask(0, 900);  // Nobody waits for the copy of round 1.
  EXPECT_EQ(said<swarm::Part>(transport_, kBulk).size(), 3U);
  engine_.copied(std::exchange(copy_job, nullptr)(), now_);
  EXPECT_EQ(said<swarm::Part>(transport_, kBulk).size(), 4U);
  EXPECT_TRUE(said<swarm::NotHeld>(transport_, kBulk).empty());
  engine_.copied(std::exchange(copy_job, nullptr)(), now_);
  EXPECT_EQ(said<swarm::NotHeld>(transport_, kBulk).size(), 1U) << "of round 2";
  EXPECT_EQ(num_copies, 3);
  EXPECT_FALSE(copy_job);
}

TEST_F(EngineTest, WhoAskedAndIsGoneIsNotAnswered) {
  engine_.serve_state([](int32_t, int64_t) { return std::make_shared<const Bytes>(1000); });
  copies_at_once = false;
  from_b(swarm::Fetch{.header = header(0), .end = 100});
  from_coordinator(swarm::View{.header = header(), .view = 2, .members = {{0, "a", "a:1"}}});
  engine_.copied(copy_job(), now_);
  EXPECT_TRUE(said<swarm::Part>(transport_, kBulk).empty());
  EXPECT_EQ(failure, "");
}

/// What was asked over a connection that broke is asked again over the next, perhaps otherwise.
TEST_F(EngineTest, WhoAskedAndConnectsAnewIsNotAnsweredTwice) {
  engine_.serve_state([](int32_t, int64_t) { return std::make_shared<const Bytes>(1000); });
  copies_at_once = false;
  from_b(swarm::Fetch{.header = header(0), .end = 100});
  constexpr net::ConnectionId kNext = 101;
  handle(net::Lost{.connection = kBulk, .reason = "reset"});
  handle(net::Opened{.connection = kNext, .inbound = true, .plane = net::Plane::kBulk});
  handle(net::Received{.connection = kNext,
                       .frame = swarm::encode(swarm::PeerHello{.header = header(), .number = 1})});
  engine_.copied(copy_job(), now_);
  now_ += seconds(2);
  engine_.tick(now_);
  EXPECT_TRUE(said<swarm::Part>(transport_, kNext).empty());
  handle(net::Received{
      .connection = kNext,
      .frame = swarm::encode(swarm::Fetch{.header = header(0), .begin = 50, .end = 100})});
  EXPECT_EQ(said<swarm::Part>(transport_, kNext).size(), 1U);
}

/// It connects before this island has heard of it: what it asks waits, but not without end.
TEST_F(EngineTest, ANewcomersRequestsWaitForTheView) {
  constexpr net::ConnectionId kNew = 200;
  handle(net::Opened{.connection = kNew, .inbound = true, .plane = net::Plane::kBulk});
  const auto from_c = [&](const swarm::Message& message) {
    handle(net::Received{.connection = kNew, .frame = swarm::encode(message)});
  };
  from_c(swarm::PeerHello{.header = header(), .number = 2});
  from_c(swarm::Fetch{.header = header(0), .end = 10});
  EXPECT_TRUE(said<swarm::NotHeld>(transport_, kNew).empty());
  from_coordinator(swarm::View{.header = header(),
                               .view = 2,
                               .members = {{0, "a", "a:1"}, {1, "b", "b:1"}, {2, "c", "c:1"}}});
  EXPECT_EQ(said<swarm::NotHeld>(transport_, kNew).size(), 1U);
}

/// A round whose parts fill the line to "b", and a newcomer "c" that asks for a state.
class LendingTest : public EngineTest {
 protected:
  static constexpr net::ConnectionId kNew = 200;
  static constexpr size_t kMiB = size_t{1} << 20;
  static constexpr size_t kLargeCount = 8 * kMiB;

  LendingTest() {
    transport_.room[kBulk] = 0;
    engine_.serve_state([](int32_t, int64_t) { return std::make_shared<const Bytes>(64 * kMiB); });
    engine_.begin({.round = 0,
                   .weight = 1,
                   .values = large_,
                   .codec = codec_.get(),
                   .topology = Topology::kGather},
                  now_);
    const auto size = static_cast<int64_t>(segment_size(kLargeCount, Topology::kGather));
    from_coordinator(swarm::OpenAttempt{.header = header(0, 0),
                                        .count = kLargeCount,
                                        .segment_values = size,
                                        .members = {0, 1},
                                        .weights = {1, 1},
                                        .shares = equal_shares(kLargeCount, Topology::kGather, 2)});
    while (engine_.work(now_)) {
    }
    handle(net::Opened{.connection = kNew, .inbound = true, .plane = net::Plane::kBulk});
    from_c(swarm::PeerHello{.header = header(), .number = 2});
    from_coordinator(swarm::View{.header = header(),
                                 .view = 2,
                                 .members = {{0, "a", "a:1"}, {1, "b", "b:1"}, {2, "c", "c:1"}}});
    from_c(swarm::Fetch{.header = header(0), .end = 64 * kMiB});
  }
  void from_c(const swarm::Message& message) {
    handle(net::Received{.connection = kNew, .frame = swarm::encode(message)});
  }
  void give_room_to_b(size_t bytes) {
    transport_.room[kBulk] += bytes;
    handle(net::Writable{kBulk});
    while (engine_.work(now_)) {
    }
  }
  size_t bytes_to(net::ConnectionId connection) {
    size_t bytes = 0;
    for (const auto& part : said<swarm::Part>(transport_, connection)) bytes += part.data.size();
    return bytes;
  }

  const std::vector<float> large_ = std::vector<float>(kLargeCount, 1.0F);
};

TEST_F(LendingTest, WhileARoundFillsTheLineANewcomerGetsAShareOfIt) {
  for (int i = 0; i < 160; ++i) give_room_to_b(100'000);
  EXPECT_GT(bytes_to(kBulk), 15 * kMiB);
  EXPECT_NEAR(static_cast<double>(bytes_to(kNew)),
              static_cast<double>(bytes_to(kBulk)) / (LendingShare::kOneIn - 1),
              static_cast<double>(kMaxChunkBytes));
  EXPECT_LT(bytes_to(kBulk), kLargeCount * sizeof(float));
}

TEST_F(LendingTest, WhatTheRoundDoesNotUseTheNewcomerGets) {
  give_room_to_b(2 * kLargeCount * sizeof(float));
  EXPECT_GE(bytes_to(kBulk), kLargeCount * sizeof(float));
  EXPECT_EQ(bytes_to(kNew), 64 * kMiB);
}

TEST_F(LendingTest, ALineThatStandsStillHoldsUpNobody) {
  const size_t before = bytes_to(kNew);
  for (int i = 0; i < 3; ++i) {
    now_ += seconds(2);
    engine_.tick(now_);
  }
  EXPECT_GE(bytes_to(kNew), before + 3 * kChunkBytes);
}

}  // namespace
}  // namespace atl::collective
