// Liars are found, whatever happens meanwhile, and nobody else is.
#include "atoll/chain/audit.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "atoll/testing/simulated_chain.h"

namespace atl::chain {
namespace {

using Lie = SimulatedChain::Lie;
using Kind = Verdict::Kind;

const ConductorOptions kEighth{.audit_fraction = 0.125};
constexpr double kWrong = 0.01;

TEST(Judge, WhoseOwnWordIsWrongIsALiar) {
  const Verdict verdict = judge({.hops = {{}, {.made = kWrong}, {.received = 1, .made = 1}}}, true);
  EXPECT_EQ(verdict.kind, Kind::kLiar);
  EXPECT_EQ(verdict.hop, 1U);
}

TEST(Judge, WhatIsNoNumberIsWrong) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(judge({.hops = {{.made = nan}}}, false).kind, Kind::kLiar);
}

TEST(Judge, SmallDifferencesAreNone) {
  EXPECT_EQ(judge({.hops = {{.received = 1e-3, .made = 1e-3}}, .arrived = 1e-3}, false).kind,
            Kind::kGood);
}

TEST(Judge, OfTwoWhoContradictEachOtherNeitherIsCondemned) {
  const Verdict verdict = judge({.hops = {{}, {}, {.received = kWrong, .made = 1}}}, false);
  EXPECT_EQ(verdict.kind, Kind::kContradiction);
  EXPECT_EQ(verdict.hop, 1U);
}

TEST(Judge, TheGatewayBelievesItself) {
  EXPECT_EQ(judge({.hops = {{}, {}}, .arrived = kWrong}, false).hop, 1U);
  EXPECT_EQ(judge({.hops = {{}, {}}, .arrived = kWrong}, false).kind, Kind::kLiar);
  EXPECT_EQ(judge({.hops = {{.received = kWrong}}}, false).kind, Kind::kLiar);
}

TEST(Judge, RowsOfWhoIsGoneAccuseNobody) {
  EXPECT_EQ(judge({.hops = {{}, {.received = kWrong}}}, true).kind, Kind::kUnknown);
  EXPECT_EQ(judge({.hops = {{}, {}}, .arrived = kWrong}, true).kind, Kind::kUnknown);
}

TEST(Arrivals, FollowTheText) {
  Arrivals arrivals;
  arrivals.add(1, 5, {{.seed = 5}, {.seed = 6}, {.seed = 7}});
  arrivals.add(1, 7, {{.seed = 70}, {.seed = 80}});
  arrivals.go_back(8);
  EXPECT_EQ(arrivals.begin(), 5);
  EXPECT_EQ(arrivals.of(1), (std::vector<Fingerprint>{{.seed = 5}, {.seed = 6}, {.seed = 70}}));
  arrivals.add(2, 3, {{.seed = 3}});
  EXPECT_TRUE(arrivals.of(1).empty());
  EXPECT_EQ(arrivals.begin(), 3);
  EXPECT_EQ(arrivals.of(2), (std::vector<Fingerprint>{{.seed = 3}}));
}

/// Texts of that length, one after another, until a server was accused or there were too many.
void ask_on(SimulatedChain& world, size_t length, int count) {
  for (int i = 0; i < count && world.accused().empty(); ++i) {
    const auto key = static_cast<uint64_t>(world.texts().size() + 1);
    std::vector<uint64_t> prompt;
    for (size_t t = 0; t < length / 10 + 1; ++t) prompt.push_back(mixed(key, t) % 1000);
    world.ask(key, prompt, length);
    for (int step = 0; step < 400 && !world.is_done(key) && world.accused().empty(); ++step) {
      world.run_for(milliseconds(50));
    }
  }
  world.run_for(milliseconds(500));
}

TEST(Audits, EveryLiarIsFoundWithin300Tokens) {
  const std::vector<std::string> addresses = {"a", "b", "c"};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    for (const std::string& liar : addresses) {
      SCOPED_TRACE(testing::Message() << seed << " " << liar);
      SimulatedChain world(seed, kEighth);
      world.add_server("a", {0, 4});
      world.add_server("b", {4, 8});
      world.add_server("c", {8, 12});
      world.servers().at(liar).lie = Lie::kRows;
      ask_on(world, 10 + world.random(300), 40);
      ASSERT_EQ(world.accused().size(), 1U);
      EXPECT_EQ(world.accused().begin()->first, liar);
      EXPECT_LE(world.accused().begin()->second, 300);
    }
  }
}

TEST(Audits, TheLastOneCannotSendOtherRowsThanItSays) {
  SimulatedChain world(3, kEighth);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  world.servers().at("b").lie = Lie::kWire;
  ask_on(world, 100, 10);
  ASSERT_EQ(world.accused().count("b"), 1U);
  EXPECT_LE(world.accused().at("b"), 300);
}

TEST(Audits, WhoContradictsTwoOthersIsTheLiar) {
  for (const Lie lie : {Lie::kWire, Lie::kReceived}) {
    SimulatedChain world(4, kEighth);
    for (const char* address : {"a1", "a2", "a3"}) world.add_server(address, {0, 4});
    world.add_server("b", {4, 8});
    for (const char* address : {"c1", "c2", "c3"}) world.add_server(address, {8, 12});
    world.servers().at("b").lie = lie;
    ask_on(world, 200, 40);
    ASSERT_EQ(world.accused().size(), 1U);
    EXPECT_EQ(world.accused().begin()->first, "b");
  }
}

TEST(Audits, HalfTheTruthIsNoWayOut) {
  SimulatedChain world(5, kEighth);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  world.servers().at("b").lie = Lie::kHalf;
  ask_on(world, 200, 30);
  EXPECT_EQ(world.accused().count("b"), 1U);
}

TEST(Audits, SilenceIsNoWayOut) {
  SimulatedChain world(5, kEighth);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  world.servers().at("b").lie = Lie::kSilence;
  ask_on(world, 200, 8);
  EXPECT_TRUE(world.accused().empty());  // It may just be slow.
  ask_on(world, 200, 30);
  EXPECT_EQ(world.accused().count("b"), 1U);
}

TEST(Audits, OneTokenInEightIsRecomputed) {
  SimulatedChain world(6, kEighth);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  ask_on(world, 100, 60);
  EXPECT_TRUE(world.accused().empty());
  const double fraction = static_cast<double>(world.conductor().num_audited()) /
                          static_cast<double>(world.servers().at("a").num_read);
  EXPECT_NEAR(fraction, 0.125, 0.02);
}

TEST(Audits, WithoutThemNothingIsAsked) {
  SimulatedChain world(7);
  world.add_server("a", {0, 12});
  world.servers().at("a").lie = Lie::kSilence;
  ask_on(world, 200, 5);
  world.run_for(milliseconds(60'000));
  EXPECT_TRUE(world.accused().empty());
  EXPECT_EQ(world.conductor().num_audited(), 0);
}

TEST(Audits, TextsGoOnWithoutTheLiar) {
  SimulatedChain world(8, kEighth);
  world.add_server("a", {0, 4});
  world.add_server("b", {4, 8});
  world.add_server("c", {8, 12});
  world.servers().at("b").lie = Lie::kRows;
  world.ask(1, std::vector<uint64_t>(100, 1), 400);
  world.run_for(milliseconds(3000));
  ASSERT_EQ(world.accused().count("b"), 1U);
  const size_t made_with_it = world.texts().at(1).size();
  world.add_server("b2", {4, 8});
  world.run_for(milliseconds(20'000));
  ASSERT_TRUE(world.is_done(1));
  // What was made till then stays, and all else is what the model makes of it.
  const std::vector<uint64_t>& text = world.texts().at(1);
  const std::vector<uint64_t> begun(text.begin(),
                                    text.begin() + static_cast<int64_t>(made_with_it));
  EXPECT_EQ(text, undisturbed(begun, 400));
}

TEST(Audits, NobodyElseIsAccusedWhateverHappens) {
  int num_found = 0;
  for (uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedChain world(seed, kEighth);
    world.add_crowd();
    const std::string liar = seed % 4 == 0 ? std::string() : world.any_server();
    if (!liar.empty()) {
      world.servers().at(liar).lie = static_cast<Lie>(1 + world.random(5));
    }
    uint64_t key = 0;
    for (int step = 0; step < 60; ++step) {
      if (step % 6 == 0) {
        std::vector<uint64_t> prompt;
        const uint64_t alike = world.random(3);
        for (uint64_t t = 0; t < 1 + world.random(50); ++t) prompt.push_back(mixed(alike, t));
        world.ask(++key, prompt, prompt.size() + 60);
      }
      world.run_for(milliseconds(world.random(300)));
      world.mishap(8);
    }
    for (const auto& [name, reason] : world.conductor().liars()) EXPECT_EQ(name, liar) << reason;
    num_found += static_cast<int>(world.accused().size());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(num_found, 150);
}

}  // namespace
}  // namespace atl::chain
