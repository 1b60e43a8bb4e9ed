#include "atoll/chain/directory_post.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "atoll/chain/lease.h"
#include "atoll/chain/wire.h"

namespace atl::chain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

/// Keeps what is said.
class Wire final : public net::Transport {
 public:
  Result<std::string> listen(const std::string& address) override { return address; }
  net::ConnectionId connect(const std::string& /*address*/, net::Plane) override { return ++last; }
  net::ConnectionId meet(const net::Meeting&, net::Plane) override { return 0; }
  net::Sent send(net::ConnectionId connection, Bytes frame) override {
    said[connection].push_back(kind_name(decode(frame)));
    return net::Sent::kAccepted;
  }
  void close(net::ConnectionId connection) override { closed.push_back(connection); }
  net::Traffic traffic() const override { return {}; }

  net::ConnectionId last = 0;
  std::map<net::ConnectionId, std::vector<std::string>> said;
  std::vector<net::ConnectionId> closed;
};

struct DirectoryPostTest : testing::Test {
  DirectoryPostOptions options(bool watches = false) {
    return {.coordinator = "there:7070",
            .authority = "ours",
            .tell = [this](const Event& event) { kinds.push_back(event.kind); },
            .watches = watches ? std::optional<std::string>("d") : std::nullopt};
  }
  static Lease lease() {
    return {.name = "a",
            .address = "here:7074",
            .model = "m",
            .digest = "d",
            .num_layers = 8,
            .max_layers = 4};
  }
  void open(DirectoryPost& post) {
    post.tick(now);
    post.handle(net::Opened{.connection = wire.last}, now);
  }
  void hear(DirectoryPost& post, const Message& message) {
    post.handle(net::Received{wire.last, encode(message)}, now);
  }

  Time now{};
  std::vector<std::string> kinds;
  Wire wire;
};

TEST_F(DirectoryPostTest, AServerOffersItsLeaseEachSecondAndAtOnceWhenItIsAnother) {
  DirectoryPost post(options(), wire);
  post.tick(now);
  EXPECT_EQ(wire.last, 0U);  // It has nothing to say.
  post.set_lease(lease(), now);
  open(post);
  EXPECT_TRUE(post.is_connected());
  EXPECT_FALSE(post.has_joined());  // It may be refused.
  EXPECT_TRUE(post.owns(1));
  EXPECT_FALSE(post.owns(2));
  EXPECT_THAT(wire.said[1], ElementsAre("Offer", "Ping"));
  now = post.next_deadline();
  EXPECT_EQ(now, Time{} + seconds(1));
  post.tick(now);
  EXPECT_THAT(wire.said[1], ElementsAre("Offer", "Ping", "Offer", "Ping"));
  Lease busier = lease();
  busier.num_sessions = 3;
  post.set_lease(busier, now);
  EXPECT_EQ(wire.said[1].size(), 4U);
  busier.state = LeaseState::kServing;
  busier.layers = {0, 4};
  post.set_lease(busier, now);
  EXPECT_EQ(wire.said[1].size(), 5U);
}

TEST_F(DirectoryPostTest, AGatewayKeepsWhatItHeardWhileTheCoordinatorIsAway) {
  DirectoryPost post(options(true), wire);
  open(post);
  EXPECT_THAT(wire.said[1], ElementsAre("Watch", "Ping"));
  EXPECT_EQ(post.servers_version(), 0U);
  hear(post, Servers{{lease()}});
  EXPECT_THAT(post.servers(), ElementsAre(lease()));
  EXPECT_EQ(post.servers_version(), 1U);
  post.handle(net::Lost{1, "gone"}, now);
  EXPECT_FALSE(post.is_connected());
  EXPECT_THAT(post.servers(), ElementsAre(lease()));
  now = post.next_deadline();
  open(post);
  EXPECT_THAT(wire.said[2], ElementsAre("Watch", "Ping"));
  EXPECT_THAT(kinds, ElementsAre("directory_missed"));
  hear(post, Pong{1});
  EXPECT_THAT(kinds, ElementsAre("directory_missed", "directory_reached"));
}

TEST_F(DirectoryPostTest, ReportsAreSaidToEachCoordinatorThatComes) {
  DirectoryPost post(options(true), wire);
  post.report("early", "why");
  open(post);
  EXPECT_THAT(wire.said[1], ElementsAre("Watch", "Report", "Ping"));
  post.report("b", "why");
  EXPECT_THAT(wire.said[1], ElementsAre("Watch", "Report", "Ping", "Report"));
  now = post.next_deadline();
  post.tick(now);
  EXPECT_THAT(wire.said[1], ElementsAre("Watch", "Report", "Ping", "Report", "Ping"));
  post.handle(net::Lost{1, "gone"}, now);
  now = post.next_deadline();
  open(post);
  EXPECT_THAT(wire.said[2], ElementsAre("Watch", "Report", "Report", "Ping"));
}

TEST_F(DirectoryPostTest, PausesGrowToALongestOneThatADirectoryWaitsFor) {
  DirectoryPost post(options(true), wire);
  Duration before{};
  for (net::ConnectionId connection = 1; connection < 9; ++connection) {
    post.tick(now);
    ASSERT_EQ(wire.last, connection);
    post.handle(net::Lost{connection, "refused"}, now);
    const Duration pause = post.next_deadline() - now;
    EXPECT_GE(pause, before);
    EXPECT_LE(pause, DirectoryPost::kLongestPause);
    before = pause;
    now = post.next_deadline();
  }
  EXPECT_THAT(kinds, ElementsAre("directory_unanswered"));
}

TEST_F(DirectoryPostTest, WhereNobodyAnswersItsUserKnowsAfterSomeSeconds) {
  DirectoryPost post(options(true), wire);
  for (net::ConnectionId connection = 1; now < Time{} + seconds(1); ++connection) {
    post.tick(now);
    post.handle(net::Lost{connection, "refused"}, now);
    now = post.next_deadline();
  }
  EXPECT_THAT(kinds, ElementsAre());  // They may be started at the same time.
  EXPECT_FALSE(post.has_joined());
  post.tick(now);  // Nothing comes of this call.
  EXPECT_EQ(post.next_deadline(), Time{} + DirectoryPost::kUnanswered);
  now = post.next_deadline();
  post.tick(now);
  EXPECT_THAT(kinds, ElementsAre("directory_unanswered"));
  EXPECT_EQ(post.next_deadline(), Time::max());
  post.handle(net::Opened{.connection = wire.last}, now);
  hear(post, Pong{1});
  EXPECT_TRUE(post.has_joined());
  EXPECT_THAT(kinds, ElementsAre("directory_unanswered", "directory_reached"));
  post.handle(net::Lost{wire.last, "gone"}, now);
  EXPECT_TRUE(post.has_joined());
  EXPECT_EQ(kinds.back(), "directory_missed");
}

TEST_F(DirectoryPostTest, AnotherReasonIsToldAsWell) {
  DirectoryPost post(options(true), wire);
  open(post);
  hear(post, Pong{1});
  post.handle(net::Lost{1, "lost"}, now);
  while (now < Time{} + seconds(60)) {  // As where the coordinator has revoked this member.
    now = post.next_deadline();
    post.tick(now);
    post.handle(net::Lost{wire.last, "revoked"}, now);
  }
  EXPECT_THAT(kinds, ElementsAre("directory_missed", "directory_missed"));
}

TEST_F(DirectoryPostTest, ACoordinatorThatFallsSilentIsCalledAnew) {
  DirectoryPost post(options(true), wire);
  open(post);
  while (wire.closed.empty() && now < Time{} + seconds(60)) {
    now = post.next_deadline();
    post.tick(now);
  }
  EXPECT_EQ(now, Time{} + DirectoryPost::kPatience);
  EXPECT_FALSE(post.is_connected());
  post.handle(net::Lost{1, "late"}, now);  // Not its own any more.
  EXPECT_EQ(post.next_deadline(), now + DirectoryPost::kFirstPause);
}

TEST_F(DirectoryPostTest, APlaceIsTakenOnceAndHasToFit) {
  DirectoryPost post(options(), wire);
  post.set_lease(lease(), now);
  open(post);
  EXPECT_EQ(post.take_place(), std::nullopt);
  hear(post, Place{{0, 3}});
  hear(post, Place{{4, 8}});
  EXPECT_EQ(post.take_place(), (Span{4, 8}));
  EXPECT_EQ(post.take_place(), std::nullopt);
  hear(post, Place{{0, 5}});  // There is memory for 4.
  EXPECT_EQ(post.take_place(), std::nullopt);
  EXPECT_THAT(wire.closed, ElementsAre(1U));
}

TEST_F(DirectoryPostTest, WhoIsRefusedKnowsWhyAndComesAgain) {
  DirectoryPost post(options(), wire);
  post.set_lease(lease(), now);
  for (int i = 0; i < 2; ++i) {
    open(post);
    hear(post, Refused{"another is called so"});
    post.handle(net::Lost{wire.last, "closed"}, now);
    EXPECT_EQ(post.refused(), "another is called so");
    EXPECT_EQ(post.next_deadline(), now + DirectoryPost::kLongestPause);
    now = post.next_deadline();
  }
  open(post);
  hear(post, Pong{1});
  EXPECT_EQ(post.refused(), std::nullopt);
  EXPECT_THAT(kinds, ElementsAre("directory_refused"));
}

TEST_F(DirectoryPostTest, WhoIsRevokedIsPassedOn) {
  DirectoryPostOptions own = options(true);
  Bytes heard;
  own.on_revocations = [&](const Bytes& signed_list) { heard = signed_list; };
  DirectoryPost post(own, wire);
  open(post);
  hear(post, Revoked{Bytes(3)});
  EXPECT_EQ(heard, Bytes(3));
  EXPECT_FALSE(post.has_joined());  // It may be refused yet.
}

TEST_F(DirectoryPostTest, WhatIsNoMessageEndsTheConnection) {
  DirectoryPost post(options(true), wire);
  open(post);
  post.handle(net::Received{1, Bytes(20)}, now);
  EXPECT_THAT(wire.closed, ElementsAre(1U));
  EXPECT_EQ(post.next_deadline(), now + DirectoryPost::kFirstPause);
}

TEST(LeaseTest, WhatAStrangerOffersHasToMakeSense) {
  const Lease good{.name = "a",
                   .address = "here:7074",
                   .model = "m",
                   .digest = "d",
                   .num_layers = 8,
                   .max_layers = 4,
                   .state = LeaseState::kServing,
                   .layers = {2, 6},
                   .layers_per_s = 3};
  EXPECT_EQ(fault_of(good), "");
  const auto faulty = [&](auto&& change) {
    Lease lease = good;
    change(lease);
    return !fault_of(lease).empty();
  };
  EXPECT_TRUE(faulty([](Lease& lease) { lease.name = "a b"; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.address = "here"; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.digest.clear(); }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.model = "m\n"; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.num_layers = 0; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.num_layers = kMostLayers + 1; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.max_layers = -1; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.max_layers = 3; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.layers = {6, 2}; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.layers = {6, 9}; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.layers = {-2147483647, 2147483647}; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.state = LeaseState::kWaiting; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.layers_per_s = -1; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.layers_per_s = 1.0 / 0.0; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.token_layers_per_s = std::nan(""); }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.num_free = 1; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.num_sessions = -1; }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.links.resize(kMostLinks + 1, {"h:1", 2}); }));
  EXPECT_TRUE(faulty([](Lease& lease) { lease.links = {{"h:1", -1}}; }));
}

TEST(LeaseTest, AModelIsServedWhereEachLayerIs) {
  const auto lease = [](Span layers, LeaseState state = LeaseState::kServing) {
    return Lease{.state = state, .layers = layers};
  };
  EXPECT_FALSE(are_all_served({}, 8, false));
  EXPECT_TRUE(are_all_served({lease({4, 8}), lease({2, 3}), lease({0, 5})}, 8, false));
  EXPECT_FALSE(are_all_served({lease({0, 4}), lease({5, 8})}, 8, false));
  EXPECT_FALSE(are_all_served({lease({0, 4}), lease({4, 8}, LeaseState::kLoading)}, 8, false));
  EXPECT_FALSE(are_all_served({lease({0, 7})}, 8, false));
  Lease begin = lease({0, 5});
  Lease end = lease({4, 8});
  end.has_head = true;
  EXPECT_FALSE(are_all_served({begin, end}, 8, true));
  begin.has_head = true;
  EXPECT_TRUE(are_all_served({begin, end}, 8, true));
}

}  // namespace
}  // namespace atl::chain
