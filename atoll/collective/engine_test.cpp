// One engine alone, its transport and both sides of its connections played by the test: what the
// others may send it, and when.
#include "atoll/collective/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "atoll/codec/codec.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Keeps what was sent, by connection.
class SentFrames final : public net::Transport {
 public:
  Result<std::string> listen(const std::string& address) override { return address; }
  net::ConnectionId connect(const std::string&, net::Plane) override { return ++last_; }
  net::Sent send(net::ConnectionId connection, Bytes frame) override {
    if (const auto found = room.find(connection); found != room.end()) {
      if (found->second < frame.size()) return net::Sent::kFull;
      found->second -= frame.size();
    }
    sent[connection].push_back(swarm::decode(frame));
    return net::Sent::kAccepted;
  }
  void close(net::ConnectionId) override {}
  net::Traffic traffic() const override { return {}; }

  std::map<net::ConnectionId, std::vector<swarm::Message>> sent;
  std::map<net::ConnectionId, size_t> room;  // In bytes; no entry: without end.

 private:
  net::ConnectionId last_ = 0;
};

/// Island "a" of "a" and "b", in training. The test speaks for the coordinator and for "b".
class EngineTest : public testing::Test, public EngineListener {
 protected:
  static constexpr net::ConnectionId kControl = 1;
  static constexpr net::ConnectionId kBulk = 100;
  static constexpr size_t kCount = 1000;

  explicit EngineTest(bool joins = false) {
    engine_.connect(now_);
    handle(net::Opened{.connection = kControl});
    from_coordinator(swarm::Welcome{.header = header()});
    engine_.ready({.checkpoints = {{0, "p0"}}});
    swarm::Start start{
        .header = header(), .members = {{0, "a", "a:1"}, {1, "b", "b:1"}}, .num_replicas = 2};
    if (joins) {
      start.joins = true;
      start.held = {{.round = 4, .step = 5}};
    }
    from_coordinator(start);
    handle(net::Opened{.connection = kBulk, .inbound = true, .plane = net::Plane::kBulk});
    from_b(swarm::PeerHello{.header = header(), .number = 1});
  }

  static swarm::Header header(int64_t round = -1, int32_t attempt = -1) {
    return {.run = "r", .term = 1, .round = round, .attempt = attempt};
  }
  void handle(net::Event event) { engine_.handle(std::move(event), now_); }
  void from_coordinator(const swarm::Message& message) {
    handle(net::Received{.connection = kControl, .frame = swarm::encode(message)});
  }
  void from_b(const swarm::Message& message) {
    handle(net::Received{.connection = kBulk, .frame = swarm::encode(message)});
  }
  /// A chunk of what "b" contributes to the share of "a".
  static swarm::Part part_of_b(size_t data_bytes) {
    return {.header = header(0, 0), .sender = 1, .total = 2048, .data = Bytes(data_bytes)};
  }
  void begin() {
    engine_.begin({.round = 0, .weight = 1, .values = values_, .codec = codec_.get()}, now_);
  }
  /// What the coordinator heard is wrong; empty if nothing.
  std::string trouble() const {
    for (const swarm::Message& message : transport_.sent.at(kControl)) {
      if (const auto* said = std::get_if<swarm::Trouble>(&message)) return said->reason;
    }
    return {};
  }

  void prepare(PrepareJob) override {}
  void copy(CopyJob job) override {
    num_copies += 1;
    if (copies_at_once) return engine_.copied(job(), now_);
    copy_job = std::move(job);
  }
  void welcomed(const std::string&, const std::string&) override {}
  void started(const StartInfo&) override {}
  void committed(const Commit& commit, bool) override { commits.push_back(commit); }
  void leased(const std::vector<swarm::Units>&) override {}
  void called(const DueRound&) override {}
  void reinstated(int64_t) override {}
  void fetched(int32_t, Result<FetchedState> state) override { states.push_back(*state); }
  void left() override {}
  void failed(const std::string& reason, swarm::Ending) override { failure = reason; }

  std::vector<Commit> commits;
  std::vector<FetchedState> states;
  std::string failure;
  bool copies_at_once = true;
  CopyJob copy_job;
  int num_copies = 0;

  Time now_{seconds(1)};
  const std::vector<float> values_ = std::vector<float>(kCount, 1.0F);
  const std::unique_ptr<codec::Codec> codec_ = codec::make_codec("fp32");
  SentFrames transport_;
  Engine engine_{{.name = "a"}, "a:1", transport_, *this};
};

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

template <typename Kind>
std::vector<Kind> said(const SentFrames& transport, net::ConnectionId connection) {
  std::vector<Kind> out;
  const auto found = transport.sent.find(connection);
  if (found == transport.sent.end()) return out;
  for (const swarm::Message& message : found->second) {
    if (const auto* kind = std::get_if<Kind>(&message)) out.push_back(*kind);
  }
  return out;
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
