#include "atoll/chain/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "atoll/chain/lease.h"
#include "atoll/chain/wire.h"

namespace atl::chain {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

struct DirectoryTest : testing::Test {
  static Lease lease(const std::string& name, int32_t max_layers = 8) {
    return {.name = name,
            .address = name + ":7074",
            .model = "m",
            .digest = "d",
            .num_layers = 16,
            .max_layers = max_layers,
            .layers_per_s = 10,
            .num_positions = 100};
  }
  static Lease serving(const std::string& name, Span layers) {
    Lease lease = DirectoryTest::lease(name);
    lease.state = LeaseState::kServing;
    lease.layers = layers;
    return lease;
  }
  static identity::PeerId peer(identity::Role role, const std::string& name) {
    return {.run = std::string(64, 'a'), .role = role, .name = name};
  }

  void open(net::ConnectionId connection, std::optional<identity::PeerId> peer = {}) {
    keep(directory.opened(connection, std::move(peer), now));
  }
  void say(net::ConnectionId connection, const Message& message) {
    keep(directory.received(connection, message, now));
  }
  /// From a connection of its own.
  void offer(net::ConnectionId connection, const Lease& lease) {
    if (opened.insert(connection).second) open(connection);
    leases[connection] = lease;
    say(connection, Offer{lease});
  }
  /// All who have a lease go on renewing it.
  void wait(Duration duration) {
    for (const Time end = now + duration; now < end;) {
      now += milliseconds(50);
      if ((now - Time{}) % kLeaseRenewal == Duration{}) {
        for (const auto& [connection, lease] : leases) say(connection, Offer{lease});
        for (const net::ConnectionId watcher : watchers) say(watcher, Ping{1});
      }
      if (now >= directory.next_deadline()) keep(directory.tick(now));
    }
  }
  void watch(net::ConnectionId connection, const std::string& digest = "d") {
    open(connection);
    watchers.insert(connection);
    say(connection, Watch{digest});
  }
  void lose(net::ConnectionId connection) {
    leases.erase(connection);
    keep(directory.lost(connection, now));
  }
  void keep(const Directory::Actions& actions) {
    for (const auto& action : actions) {
      if (const auto* send = std::get_if<Directory::Send>(&action)) {
        if (const auto* place = std::get_if<Place>(&send->message))
          places[send->to] = place->layers;
        if (const auto* list = std::get_if<Servers>(&send->message)) {
          lists[send->to].push_back(list->leases);
        }
        if (const auto* refused = std::get_if<Refused>(&send->message)) {
          refusals[send->to] = refused->reason;
        }
      } else if (const auto* close = std::get_if<Directory::Close>(&action)) {
        closed.push_back(close->connection);
        leases.erase(close->connection);
      } else if (const auto* log = std::get_if<Directory::Log>(&action)) {
        kinds.push_back(log->event.kind);
      }
    }
  }

  Time now{};
  Directory directory{now};
  std::set<net::ConnectionId> opened;
  std::set<net::ConnectionId> watchers;
  std::map<net::ConnectionId, Lease> leases;
  std::map<net::ConnectionId, Span> places;
  std::map<net::ConnectionId, std::vector<std::vector<Lease>>> lists;
  std::map<net::ConnectionId, std::string> refusals;
  std::vector<net::ConnectionId> closed;
  std::vector<std::string> kinds;
};

TEST_F(DirectoryTest, AllMembersHearWhoIsNoneAnyMore) {
  const auto told = [](const Directory::Actions& actions) {
    std::vector<net::ConnectionId> receivers;
    for (const auto& action : actions) {
      const auto* send = std::get_if<Directory::Send>(&action);
      if (send != nullptr && std::holds_alternative<Revoked>(send->message)) {
        receivers.push_back(send->to);
      }
    }
    return receivers;
  };
  EXPECT_THAT(told(directory.opened(1, peer(identity::Role::kServer, "a"), now)), IsEmpty());
  EXPECT_THAT(told(directory.opened(2, {}, now)), IsEmpty());
  EXPECT_THAT(told(directory.tell_revocations(Bytes(3))), ElementsAre(1U));
  EXPECT_THAT(told(directory.opened(3, peer(identity::Role::kGateway, "g"), now)), ElementsAre(3U));
  EXPECT_THAT(told(directory.opened(4, {}, now)), IsEmpty());  // In the clear nobody can be.
}

TEST_F(DirectoryTest, ThoseThatComeTogetherAreSpreadOverAllLayers) {
  offer(1, lease("a"));
  wait(milliseconds(500));
  offer(2, lease("b"));
  EXPECT_THAT(places, IsEmpty());
  wait(seconds(4));
  EXPECT_EQ(places[1], (Span{0, 8}));
  EXPECT_EQ(places[2], (Span{8, 16}));
  offer(1, serving("a", {0, 8}));
  offer(2, serving("b", {8, 16}));
  wait(seconds(1));
  EXPECT_THAT(kinds, ElementsAre("server_came", "server_came", "server_placed", "server_placed",
                                 "server_serves", "server_serves", "model_whole"));
}

TEST_F(DirectoryTest, OneThatWaitsLongestIsNotKeptByOthersThatCome) {
  wait(seconds(5));
  offer(1, lease("a"));
  for (net::ConnectionId other = 2; places.empty() && other < 20; ++other) {
    offer(other, lease("b" + std::to_string(other)));
    wait(milliseconds(800));
  }
  EXPECT_LE(now - Time{}, seconds(5) + Placer::kLongestGathering + seconds(1));
}

TEST_F(DirectoryTest, WatchersHearAtOnceWhatMattersForRoutesAndElseOnceASecond) {
  wait(seconds(4));
  watch(9);
  watch(8, "another");
  EXPECT_THAT(lists[9], ElementsAre(IsEmpty()));
  Lease a = serving("a", {0, 8});
  offer(1, a);
  ASSERT_THAT(lists[9], SizeIs(2));
  EXPECT_THAT(lists[9].back(), ElementsAre(a));
  for (int i = 1; i <= 40; ++i) {  // Within 2 s.
    a.num_sessions = i;
    offer(1, a);
    wait(milliseconds(50));
  }
  EXPECT_LE(lists[9].size(), 5U);
  wait(seconds(1));
  EXPECT_THAT(lists[9].back(), ElementsAre(a));
  const size_t before = lists[9].size();
  a.state = LeaseState::kDraining;
  offer(1, a);
  EXPECT_EQ(lists[9].size(), before + 1);
  EXPECT_THAT(lists[8], ElementsAre(IsEmpty()));
}

TEST_F(DirectoryTest, WatchersHearOfTheirModelInAnyTypeAndTypesAreModelsOfTheirOwn) {
  wait(seconds(4));
  watch(8, "another");
  watch(9, "d+int4");
  Lease int8 = lease("a");
  int8.digest = "d+int8";
  offer(1, int8);
  offer(2, lease("b"));
  wait(seconds(4));
  EXPECT_THAT(lists[9].back(), SizeIs(2));
  EXPECT_THAT(lists[8], ElementsAre(IsEmpty()));
  EXPECT_EQ(places[1], places[2]) << "none fills the other's gaps";
}

TEST_F(DirectoryTest, ChangesThatComeTogetherAreToldTogether) {
  wait(seconds(4));
  watch(9);
  for (net::ConnectionId server = 1; server < 8; ++server) {
    offer(server, serving("s" + std::to_string(server), {0, 8}));
  }
  wait(milliseconds(100));
  EXPECT_LE(lists[9].size(), 3U);
  EXPECT_THAT(lists[9].back(), SizeIs(7));
}

TEST_F(DirectoryTest, WhoFallsSilentIsForgottenAndWhoseConnectionIsLostSooner) {
  wait(seconds(4));
  watch(9);
  offer(1, serving("a", {0, 8}));
  offer(2, serving("b", {8, 16}));
  wait(seconds(1));
  EXPECT_EQ(kinds.back(), "model_whole");
  leases.erase(1);
  wait(kLeaseLength - seconds(1));
  EXPECT_THAT(lists[9].back(), SizeIs(2));
  wait(milliseconds(1500));
  EXPECT_THAT(lists[9].back(), ElementsAre(serving("b", {8, 16})));
  lose(2);
  wait(Directory::kLostGrace - milliseconds(100));
  EXPECT_THAT(lists[9].back(), SizeIs(1));
  wait(milliseconds(500));
  EXPECT_THAT(lists[9].back(), IsEmpty());
  EXPECT_THAT(directory.leases(), IsEmpty());
  EXPECT_EQ(std::ranges::count(kinds, "server_gone"), 2);
  EXPECT_EQ(std::ranges::count(kinds, "model_torn"), 1);
}

TEST_F(DirectoryTest, WhoComesBackInTimeWasNeverGone) {
  wait(seconds(4));
  offer(1, serving("a", {0, 8}));
  lose(1);
  wait(milliseconds(500));
  offer(2, serving("a", {0, 8}));
  wait(seconds(3));
  EXPECT_THAT(directory.leases(), SizeIs(1));
  EXPECT_EQ(std::ranges::count(kinds, "server_gone"), 0);
}

TEST_F(DirectoryTest, OneThatBeginsAnewHearsBeforeItSpeaks) {
  watch(9);
  offer(1, lease("a", 16));
  wait(milliseconds(2900));
  EXPECT_THAT(lists[9], IsEmpty());
  EXPECT_THAT(places, IsEmpty());
  offer(2, serving("b", {0, 8}));  // That comes back late.
  wait(seconds(1));
  ASSERT_FALSE(lists[9].empty());
  EXPECT_THAT(lists[9].front(), SizeIs(2));
}

TEST_F(DirectoryTest, AGapIsFilledByWhoWaitsAndElseByWhoCanBeSpared) {
  wait(seconds(4));
  offer(1, serving("a", {0, 8}));
  offer(2, serving("b", {0, 8}));
  offer(3, serving("c", {8, 16}));
  wait(seconds(15));
  EXPECT_THAT(places, IsEmpty());
  lose(3);
  wait(seconds(3));
  ASSERT_THAT(places, SizeIs(1));
  EXPECT_EQ(places.begin()->second, (Span{8, 16}));
}

TEST_F(DirectoryTest, NobodyMovesToAGapWhoseLayersNobodyCanSend) {
  Lease a = serving("a", {8, 16});
  Lease b = serving("b", {8, 16});
  a.has_files = b.has_files = false;
  offer(1, a);
  offer(2, b);
  wait(seconds(30));
  EXPECT_THAT(places, IsEmpty());
  leases[2].has_files = true;
  wait(seconds(12));
  EXPECT_THAT(places, SizeIs(1));
}

TEST_F(DirectoryTest, NeverDoTwoMoveAtOnceAndALeaseThatEndsEndsAMove) {
  wait(seconds(4));
  for (net::ConnectionId server = 1; server <= 6; ++server) {
    offer(server, serving("a" + std::to_string(server), {0, 8}));
  }
  offer(7, serving("b", {8, 16}));
  wait(seconds(9));
  ASSERT_THAT(places, SizeIs(1));
  const net::ConnectionId mover = places.begin()->first;
  Lease moves = leases[mover];
  moves.state = LeaseState::kDraining;
  offer(mover, moves);
  wait(seconds(60));
  moves.state = LeaseState::kLoading;
  moves.layers = {8, 16};
  offer(mover, moves);
  wait(seconds(60));
  EXPECT_THAT(places, SizeIs(1));
  lose(mover);
  wait(seconds(15));
  EXPECT_THAT(places, SizeIs(2));
}

TEST_F(DirectoryTest, WhoDoesNotDoWhatItIsToldIsLeftAloneForAWhile) {
  wait(seconds(4));
  offer(1, lease("a", 16));
  wait(seconds(3));
  EXPECT_THAT(places, SizeIs(1));
  places.clear();
  wait(Placer::kObeying);
  EXPECT_EQ(kinds.back(), "server_idle");
  wait(seconds(30));
  EXPECT_THAT(places, IsEmpty());
  wait(Placer::kIdle);
  EXPECT_THAT(places, SizeIs(1));
}

TEST_F(DirectoryTest, WhoIsStartedAnewIsPlacedAnew) {
  wait(seconds(4));
  offer(1, lease("a", 16));
  wait(seconds(3));
  EXPECT_EQ(places[1], (Span{0, 16}));
  lose(1);
  offer(2, lease("a", 4));  // With less memory.
  wait(seconds(3));
  EXPECT_EQ(places[2], (Span{0, 4}));
}

TEST_F(DirectoryTest, FixedLayersStay) {
  wait(seconds(4));
  for (net::ConnectionId server = 1; server <= 3; ++server) {
    Lease fixed = serving("a" + std::to_string(server), {0, 8});
    fixed.is_fixed = true;
    offer(server, fixed);
  }
  offer(4, serving("b", {8, 16}));
  wait(seconds(60));
  EXPECT_THAT(places, IsEmpty());
}

TEST_F(DirectoryTest, WhoLeavesIsReplacedBeforeItIsGone) {
  wait(seconds(4));
  Lease leaves = serving("a", {0, 8});
  leaves.max_layers = 16;
  offer(1, leaves);
  leaves.state = LeaseState::kDraining;
  offer(1, leaves);
  offer(2, lease("b", 16));
  wait(seconds(3));
  EXPECT_EQ(places[2], (Span{0, 16}));
}

TEST_F(DirectoryTest, ModelsAreNotMixed) {
  wait(seconds(4));
  offer(1, serving("a", {0, 8}));
  Lease other = lease("b");
  other.digest = "other";
  offer(2, other);
  wait(seconds(3));
  EXPECT_EQ(places[2], (Span{0, 8}));  // Not the gap of the first.
}

TEST_F(DirectoryTest, ACertificateSaysWhoAServerIs) {
  open(1, peer(identity::Role::kServer, "b"));
  say(1, Offer{lease("a")});
  open(2, peer(identity::Role::kGateway, "a"));
  say(2, Offer{lease("a")});
  EXPECT_THAT(closed, ElementsAre(1U, 2U));
  EXPECT_EQ(refusals[2], "its certificate is of role gateway, not server");
  EXPECT_THAT(kinds, ElementsAre("offer_refused", "offer_refused"));
  open(3, peer(identity::Role::kServer, "a"));
  say(3, Offer{lease("a")});
  EXPECT_THAT(directory.leases(), SizeIs(1));
  // It was started elsewhere, and its old connection is not known to be gone.
  Lease elsewhere = lease("a");
  elsewhere.address = "elsewhere:7074";
  open(4, peer(identity::Role::kServer, "a"));
  say(4, Offer{elsewhere});
  EXPECT_THAT(closed, ElementsAre(1U, 2U, 3U));
  EXPECT_THAT(directory.leases(), ElementsAre(elsewhere));
}

TEST_F(DirectoryTest, InTheClearANameIsOnesWhileItIsThere) {
  offer(1, lease("a"));
  Lease other = lease("a");
  other.address = "other:7074";
  offer(2, other);
  EXPECT_EQ(refusals[2], "another server is called 'a'");
  lose(1);
  offer(3, other);
  EXPECT_THAT(directory.leases(), ElementsAre(other));
}

TEST_F(DirectoryTest, WhatMakesNoSenseIsRefused) {
  Lease wrong = lease("a");
  wrong.num_layers = 5000;
  offer(1, wrong);
  EXPECT_EQ(refusals[1], "a model of 5000 layers");
  offer(2, lease("a"));
  Lease longer = lease("b");
  longer.num_layers = 17;
  offer(3, longer);
  EXPECT_NE(refusals[3].find("17"), std::string::npos);
  offer(2, lease("c"));
  EXPECT_EQ(refusals[2], "it was 'a' before");
  Lease other = lease("e");
  offer(6, other);
  other.digest = "other";
  offer(6, other);
  EXPECT_EQ(refusals[6], "it was for another model before");
  open(7);
  say(7, Watch{std::string(1000, 'd')});
  EXPECT_EQ(refusals[7], "a digest too long");
  open(4);
  say(4, Place{{0, 1}});
  EXPECT_EQ(refusals[4], "no directory hears a Place");
  say(4, Offer{lease("d")});  // Of a connection that is closed.
  EXPECT_THAT(directory.leases(), ElementsAre(lease("a"), lease("e")));
  open(5);
  keep(directory.garbled(5, "noise", now));
  EXPECT_EQ(refusals[5], "noise");
}

TEST_F(DirectoryTest, WhoSaysNothingIsClosed) {
  open(1);
  watch(2);
  wait(Directory::kSilence + seconds(1));
  EXPECT_THAT(closed, ElementsAre(1U));
  EXPECT_EQ(directory.next_deadline() > now, true);
}

TEST_F(DirectoryTest, AllLeasesFitInAFrame) {
  Lease longest = lease("a");
  longest.name.resize(64, 'a');
  longest.address = std::string(253, 'h') + ":65535";
  longest.model.resize(128, 'm');
  longest.digest.resize(128, 'd');
  longest.links.resize(kMostLinks, {.address = longest.address, .round_trip_ms = 1});
  ASSERT_EQ(fault_of(longest), "");
  EXPECT_LT(encode(Servers{std::vector<Lease>(Directory::kMostServers, longest)}).size(),
            net::kMaxFrameBytes);
}

TEST_F(DirectoryTest, WhomMostGatewaysReportIsShutOut) {
  offer(1, serving("a", {0, 8}));
  offer(2, serving("b", {8, 16}));
  for (const net::ConnectionId gateway : {11, 12, 13}) watch(gateway);
  wait(seconds(4));
  say(11, Report{"a", "its rows are off"});
  say(11, Report{"a", "again"});
  wait(seconds(1));
  EXPECT_THAT(directory.leases(), SizeIs(2));  // One gateway alone shuts nobody out.
  say(12, Report{"a", "its rows are off"});
  EXPECT_THAT(directory.leases(), SizeIs(1));
  EXPECT_EQ(refusals[1],
            "2 of 3 gateways report that it does not compute what its model says: its rows are "
            "off");
  EXPECT_THAT(closed, ElementsAre(1U));
  EXPECT_EQ(std::ranges::count(kinds, "server_reported"), 2);
  offer(4, serving("a", {0, 8}));
  EXPECT_THAT(directory.leases(), SizeIs(1));
  EXPECT_FALSE(refusals[4].empty());
  wait(milliseconds(100));
  EXPECT_THAT(lists[13].back(), SizeIs(1));
}

TEST_F(DirectoryTest, TheOnlyGatewayIsBelievedAsLongAsItIsThere) {
  offer(1, serving("a", {0, 8}));
  watch(11);
  watch(12, "another model");
  wait(seconds(4));
  say(11, Report{"a", "why"});
  EXPECT_THAT(directory.leases(), IsEmpty());
  lose(11);
  offer(2, serving("a", {0, 8}));
  EXPECT_THAT(directory.leases(), SizeIs(1));
}

TEST_F(DirectoryTest, GatewaysOfATypeReportItsServers) {
  Lease int8 = serving("a", {0, 8});
  int8.digest += "+int8";
  offer(1, int8);
  watch(11, int8.digest);
  watch(12, serving("b", {0, 8}).digest);  // It uses servers of another type.
  wait(seconds(4));
  EXPECT_THAT(lists[12].back(), SizeIs(1));
  say(11, Report{"a", "why"});
  EXPECT_THAT(directory.leases(), IsEmpty());
}

TEST_F(DirectoryTest, ServersReportNobody) {
  open(1, peer(identity::Role::kServer, "a"));
  open(2, peer(identity::Role::kServer, "b"));
  say(1, Offer{serving("a", {0, 8})});
  say(2, Watch{"d"});
  say(2, Report{"a", "why"});
  EXPECT_EQ(refusals[2], "servers are reported by gateways alone");
  EXPECT_THAT(directory.leases(), SizeIs(1));
}

TEST_F(DirectoryTest, AGatewayReportsNotWithoutEnd) {
  watch(11);
  for (size_t i = 0; i <= Directory::kMostReports; ++i) say(11, Report{std::to_string(i), "why"});
  EXPECT_EQ(refusals[11], "64 servers were reported");
}

}  // namespace
}  // namespace atl::chain
