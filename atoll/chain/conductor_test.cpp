// Whatever becomes of servers, each text gets the tokens that it would have had undisturbed.
#include "atoll/chain/conductor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "atoll/testing/simulated_chain.h"

namespace atl::chain {
namespace {

std::vector<uint64_t> prompt_of(uint64_t seed, size_t length) {
  std::vector<uint64_t> prompt;
  for (size_t i = 0; i < length; ++i) prompt.push_back(mixed(seed, i) % 1000);
  return prompt;
}

void expect_undisturbed(SimulatedChain& world,
                        const std::map<Conductor::Key, std::vector<uint64_t>>& asked,
                        size_t num_new) {
  for (const auto& [key, prompt] : asked) {
    EXPECT_EQ(world.texts().at(key), undisturbed(prompt, prompt.size() + num_new)) << key;
  }
}

/// Four texts with one prompt of 40 tokens.
std::map<Conductor::Key, std::vector<uint64_t>> ask_alike(SimulatedChain& world, size_t length) {
  std::map<Conductor::Key, std::vector<uint64_t>> asked;
  for (uint64_t key = 1; key <= 4; ++key) {
    asked[key] = prompt_of(9, 40);
    world.ask(key, asked[key], length);
  }
  return asked;
}

/// A text under way at a, one of b and b2, and c. Returns which of the two it is.
std::string begin_with_a_spare(SimulatedChain& world) {
  world.add_server("a", {0, 4});
  world.add_server("b", {4, 8});
  world.add_server("b2", {4, 8});
  world.add_server("c", {8, 12});
  world.ask(1, prompt_of(1, 40), 200);
  world.run_for(milliseconds(600));
  return world.servers().at("b").sessions.empty() ? "b2" : "b";
}

TEST(Conductor, ChainsOfServersGiveTheModelsTokens) {
  SimulatedChain world(1);
  world.add_server("a", {0, 5});
  world.add_server("b", {4, 9});
  world.add_server("c", {9, 12});
  world.ask(1, prompt_of(1, 40), 60);
  world.run_for(milliseconds(5000));
  expect_undisturbed(world, {{1, prompt_of(1, 40)}}, 20);
  for (const auto& [address, server] : world.servers()) {
    ASSERT_EQ(server.sessions.size(), 1U) << address;
    EXPECT_TRUE(server.sessions.begin()->second.session.rests()) << address;
  }
  EXPECT_TRUE(world.conductor().recoveries().empty());
}

TEST(Conductor, AServerThatIsKilledIsReplacedAlone) {
  SimulatedChain world(2);
  const std::string used = begin_with_a_spare(world);
  world.kill(used);
  world.tell();
  world.run_for(milliseconds(20'000));
  expect_undisturbed(world, {{1, prompt_of(1, 40)}}, 160);
  EXPECT_EQ(world.conductor().recoveries(), (std::map<std::string, int64_t>{{"lost", 1}}));
}

TEST(Conductor, TextsThatBeginAlikeAreReadOnce) {
  SimulatedChain world(5);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  const auto asked = ask_alike(world, 60);
  world.run_for(milliseconds(5000));
  expect_undisturbed(world, asked, 20);
  EXPECT_EQ(world.num_shared(), 3 * 2);
  EXPECT_TRUE(world.conductor().recoveries().empty());
}

TEST(Conductor, WhoTakesTheFirstServersPlaceIsToldThatTextsBeginAlike) {
  SimulatedChain world(5);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  const auto asked = ask_alike(world, 200);
  world.run_for(milliseconds(600));
  EXPECT_EQ(world.num_to_share(), 0);
  world.add_server("a2", {0, 6});
  world.kill("a");
  world.run_for(milliseconds(20'000));
  expect_undisturbed(world, asked, 160);
  EXPECT_EQ(world.num_to_share(), 3);
}

TEST(Conductor, LayersThatNobodyHasAreNamed) {
  SimulatedChain world(3);
  world.add_server("a", {0, 4});
  world.add_server("c", {9, 12});
  world.ask(1, prompt_of(1, 4), 8);
  world.run_for(milliseconds(5000));
  EXPECT_EQ(world.refused().at(1), "no server holds the layers 4 to 8 of 12 of this model now");
  EXPECT_EQ(world.conductor().num_sessions(), 0);
}

TEST(Conductor, LayersThatHaveJustBeenLostAreWaitedFor) {
  SimulatedChain world(3);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  world.run_for(milliseconds(1000));
  world.kill("b");
  world.tell();
  world.run_for(milliseconds(2000));
  world.ask(1, prompt_of(1, 4), 8);
  world.run_for(milliseconds(15'000));
  EXPECT_TRUE(world.refused().empty());
  world.start("b");
  world.run_for(milliseconds(5000));
  EXPECT_TRUE(world.refused().empty());
  expect_undisturbed(world, {{1, prompt_of(1, 4)}}, 4);
  world.kill("b");
  world.tell();
  world.run_for(milliseconds(60'000));
  world.ask(2, prompt_of(2, 4), 8);
  world.run_for(milliseconds(5000));
  EXPECT_EQ(world.refused().at(2), "no server holds the layers 6 to 11 of 12 of this model now");
}

TEST(Conductor, ServersOfAnotherTypeAreNoneOfItsModel) {
  SimulatedChain world(3, {.digest = "d+int8"});
  world.add_server("a", {0, 12});
  world.ask(1, prompt_of(1, 4), 8);
  world.run_for(milliseconds(5000));
  EXPECT_EQ(world.refused().at(1),
            "the servers of this model compute as its files have it, and this gateway is for it in "
            "int8: say --dtype to one of them");
}

TEST(Conductor, SessionsThatFitOnlyOneByOneAllEnd) {
  SimulatedChain world(4);
  world.add_server("a", {0, 12});
  world.servers().at("a").room = 100;
  std::map<Conductor::Key, std::vector<uint64_t>> asked;
  for (uint64_t key = 1; key <= 8; ++key) {
    asked[key] = prompt_of(key, 30);
    world.ask(key, asked[key], 60);
  }
  world.run_for(milliseconds(60'000));
  expect_undisturbed(world, asked, 30);
}

TEST(Conductor, ATextThatGrowsBeyondAllRoomIsRefusedSoon) {
  SimulatedChain world(4);
  world.add_server("a", {0, 12});
  world.servers().at("a").room = 100;
  world.tell();
  world.ask(1, prompt_of(1, 60), 200);
  world.run_for(milliseconds(30'000));
  EXPECT_THAT(world.refused().at(1),
              testing::StartsWith("no chain of servers has memory for the 10"));
}

TEST(Conductor, WhatATextThatIsOverBeganWithIsNotReadAgain) {
  SimulatedChain world(5);
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  std::map<Conductor::Key, std::vector<uint64_t>> asked{{1, prompt_of(1, 100)}};
  world.ask(1, asked[1], 140);
  world.run_for(milliseconds(5000));
  ASSERT_GE(world.kept().at(1), 130);
  EXPECT_EQ(world.conductor().num_sessions(), 0);
  const int64_t before = world.servers().at("a").num_read;
  asked[2] = world.texts().at(1);  // The next question of a conversation.
  asked[2].insert(asked[2].end(), {1, 2, 3});
  world.ask(2, asked[2], asked[2].size() + 40);
  world.run_for(milliseconds(5000));
  EXPECT_EQ(world.num_shared(), 2);  // At both servers.
  EXPECT_LT(world.servers().at("a").num_read - before, 13 + 3 + 2 * 40);
  expect_undisturbed(world, asked, 40);
  // With a server what it has kept is gone: it is read anew.
  world.kill("b");
  world.run_for(milliseconds(100));
  EXPECT_TRUE(world.kept().empty());
  world.start("b");
  asked[3] = asked[2];
  world.ask(3, asked[3], asked[3].size() + 40);
  world.run_for(milliseconds(5000));
  EXPECT_EQ(world.num_shared(), 2);
  expect_undisturbed(world, asked, 40);
}

TEST(Conductor, WhoWaitsForABeginningThatIsNeverReadReadsItItself) {
  SimulatedChain world(8);
  world.add_server("a", {0, 12});
  world.ask(1, prompt_of(1, 400), 500);
  world.run_for(milliseconds(12));
  std::map<Conductor::Key, std::vector<uint64_t>> asked{{2, prompt_of(1, 400)}};
  asked[2].back() += 1;
  world.ask(2, asked[2], 420);
  world.cancel(1);
  world.run_for(milliseconds(10'000));
  EXPECT_TRUE(world.is_done(2));
  expect_undisturbed(world, asked, 20);
}

TEST(Conductor, TextsThatAreOverMakeRoom) {
  SimulatedChain world(6);
  world.add_server("a", {0, 12});
  world.servers().at("a").room = 300;
  std::map<Conductor::Key, std::vector<uint64_t>> asked;
  for (uint64_t key = 1; key <= 6; ++key) {
    asked[key] = prompt_of(key, 60);
    world.ask(key, asked[key], 100);
    world.run_for(milliseconds(3000));
    EXPECT_TRUE(world.kept().contains(key));
  }
  EXPECT_LE(world.kept().size(), 3U);
  EXPECT_TRUE(world.conductor().recoveries().empty());
  expect_undisturbed(world, asked, 40);
}

TEST(Conductor, TextsThatAreOverAreKeptForAWhile) {
  SimulatedChain world(7);
  world.add_server("a", {0, 12});
  world.ask(1, prompt_of(1, 40), 50);
  world.run_for(std::chrono::minutes(9));
  EXPECT_EQ(world.kept().size(), 1U);
  world.run_for(std::chrono::minutes(2));
  EXPECT_TRUE(world.kept().empty());
  EXPECT_TRUE(world.servers().at("a").sessions.empty());
}

TEST(Conductor, WhoTakesAPlaceBeginsWithWhatWasKept) {
  SimulatedChain world(2, {.kept_tokens = SimulatedChain::kKeptTokens});
  world.layer_speed = 20;
  const std::string used = begin_with_a_spare(world);
  world.restoring_ms = 8000;  // Longer than something that was lost on the way is waited for.
  const std::string other = used == "b" ? "b2" : "b";
  const int64_t before = world.servers().at("a").num_read;
  world.kill(used);
  world.tell();
  world.run_for(milliseconds(20'000));
  expect_undisturbed(world, {{1, prompt_of(1, 40)}}, 160);
  EXPECT_EQ(world.num_restored(), 1);
  const int64_t read_since = world.servers().at("a").num_read - before;
  EXPECT_LT(world.servers().at(other).num_read, read_since + 3 * 8);
  EXPECT_EQ(world.conductor().recoveries(), (std::map<std::string, int64_t>{{"lost", 1}}));
}

TEST(Conductor, WhatWasKeptIsNotReadAgain) {
  SimulatedChain world(5, {.kept_tokens = SimulatedChain::kKeptTokens});
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  world.ask(1, prompt_of(1, 100), 110);
  world.run_for(milliseconds(5000));
  world.run_for(std::chrono::minutes(12));  // It does not rest any more.
  ASSERT_TRUE(world.kept().empty());
  const int64_t before = world.servers().at("a").num_read;
  world.ask(2, prompt_of(1, 100), 110);
  world.run_for(milliseconds(5000));
  expect_undisturbed(world, {{1, prompt_of(1, 100)}, {2, prompt_of(1, 100)}}, 10);
  EXPECT_EQ(world.num_restored(), 2);
  EXPECT_LE(world.servers().at("a").num_read - before, 4 + 2 * 10);
  // Where one of them has lost it, it is read by both.
  world.run_for(std::chrono::minutes(12));
  world.servers().at("b").kept.clear();
  world.servers().at("a").kept.clear();
  world.ask(3, prompt_of(1, 100), 110);
  world.run_for(milliseconds(5000));
  expect_undisturbed(world, {{3, prompt_of(1, 100)}}, 10);
  EXPECT_EQ(world.num_restored(), 2);
}

TEST(Conductor, WhatAServerHasLostIsHadFromItsNeighbourInTheChain) {
  SimulatedChain world(5, {.kept_tokens = SimulatedChain::kKeptTokens});
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  world.ask(1, prompt_of(1, 100), 110);
  world.run_for(std::chrono::minutes(12));
  std::erase_if(world.servers().at("b").kept,
                [](const auto& entry) { return entry.first.first == Span{6, 12}; });
  world.ask(2, prompt_of(1, 100), 110);
  world.run_for(milliseconds(5000));
  expect_undisturbed(world, {{2, prompt_of(1, 100)}}, 10);
  EXPECT_EQ(world.num_restored(), 2);
}

TEST(Conductor, HowLongReadingTakesIsLearnt) {
  SimulatedChain world(5, {.kept_tokens = SimulatedChain::kKeptTokens});
  world.layer_speed = 6e5;  // So they say: nobody would ask for what was kept.
  world.add_server("a", {0, 6});
  world.add_server("b", {6, 12});
  const auto prompt = prompt_of(1, 1000);
  for (const Conductor::Key key : {1, 2}) {
    world.ask(key, prompt, 1004);
    world.run_for(std::chrono::minutes(12));
  }
  expect_undisturbed(world, {{1, prompt}, {2, prompt}}, 4);
  EXPECT_EQ(world.num_restored(), 2);
}

TEST(Conductor, WhatCameRoundedIsForThatTextAlone) {
  SimulatedChain world(5, {.audit_fraction = 1, .kept_tokens = SimulatedChain::kKeptTokens});
  world.add_server("a", {0, 12});
  world.add_server("b", {0, 12});
  const auto prompt = prompt_of(1, 100);
  world.ask(1, prompt, 110);
  world.run_for(std::chrono::minutes(12));
  ASSERT_TRUE(world.kept().empty());
  const std::string used = world.servers().at("a").num_read > 0 ? "a" : "b";
  auto& others = world.servers().at(used == "a" ? "b" : "a").kept;
  others.clear();  // The next one goes there.
  world.round_after = milliseconds(1);
  const int64_t num_audited = world.conductor().num_audited();
  world.ask(2, prompt, 110);
  world.run_for(milliseconds(5000));
  ASSERT_EQ(world.num_restored(), 1);
  EXPECT_EQ(world.num_rounded(), 96);
  expect_undisturbed(world, {{2, prompt}}, 10);
  EXPECT_TRUE(world.kept().empty());
  EXPECT_TRUE(others.empty());
  EXPECT_EQ(world.conductor().num_audited(), num_audited);
  // Who does not ask for that has them to the bit.
  world.round_after = std::nullopt;
  world.ask(3, prompt, 110);
  world.run_for(milliseconds(5000));
  EXPECT_EQ(world.num_restored(), 2);
  EXPECT_EQ(world.num_rounded(), 96);
  EXPECT_EQ(world.kept().size(), 1U);
  // Who says that it has rounded what nobody asked for is believed nothing.
  world.run_for(std::chrono::minutes(12));
  world.rounds_unasked = true;
  others.clear();
  world.ask(4, prompt, 110);
  world.run_for(std::chrono::minutes(1));
  expect_undisturbed(world, {{4, prompt}}, 10);
  EXPECT_EQ(world.num_rounded(), 96);
}

TEST(Conductor, WhatBeganRoundedIsAuditedBehindIt) {
  for (const bool lies : {false, true}) {
    SimulatedChain world(
        5,
        {.audit_fraction = 1, .audits_rounded = true, .kept_tokens = SimulatedChain::kKeptTokens});
    for (const char* server : {"a", "b"}) world.add_server(server, {0, 12});
    const auto prompt = prompt_of(1, 100);
    world.ask(1, prompt, 110);
    world.run_for(std::chrono::minutes(12));
    const std::string other = world.servers().at("a").num_read > 0 ? "b" : "a";
    world.servers().at(other).kept.clear();  // The next one goes there.
    if (lies) world.servers().at(other).lie = SimulatedChain::Lie::kRows;
    world.round_after = milliseconds(1);
    const int64_t num_audited = world.conductor().num_audited();
    world.ask(2, prompt, 200);
    world.run_for(std::chrono::minutes(1));
    ASSERT_GT(world.num_rounded(), 0);
    EXPECT_GT(world.num_rounded_audits(), 0);
    EXPECT_GT(world.conductor().num_audited(), num_audited);
    // What was kept may be another's: the text is read anew, and who goes on lying is found then.
    EXPECT_EQ(world.conductor().recoveries().contains("anew"), lies);
    EXPECT_EQ(world.accused().contains(other), lies);
    EXPECT_TRUE(world.is_done(2));
  }
}

/// A text of which nearly all of the prompt came rounded, to that server.
std::string ask_rounded(SimulatedChain& world) {
  for (const char* server : {"a", "b"}) world.add_server(server, {0, 12});
  world.ask(1, prompt_of(1, 100), 110);
  world.run_for(std::chrono::minutes(12));
  const std::string other = world.servers().at("a").num_read > 0 ? "b" : "a";
  world.servers().at(other).kept.clear();  // The next one goes there.
  world.round_after = milliseconds(1);
  world.ask(2, prompt_of(1, 100), 2000);
  world.run_for(milliseconds(300));
  EXPECT_GT(world.num_rounded(), 0);
  EXPECT_FALSE(world.is_done(2));
  return other;
}

constexpr ConductorOptions kAuditsAll{
    .audit_fraction = 1, .audits_rounded = true, .kept_tokens = SimulatedChain::kKeptTokens};

TEST(Conductor, WhatIsNotToBeHadForAnAuditIsNotAskedForAgain) {
  SimulatedChain world(5, kAuditsAll);
  world.gives_what_was_had = false;
  ask_rounded(world);
  world.run_for(std::chrono::minutes(2));
  EXPECT_TRUE(world.is_done(2));
  EXPECT_EQ(world.num_rounded_audits(), 1);
  EXPECT_TRUE(world.accused().empty());
}

TEST(Conductor, HowATextBeganSaysNothingOfServersThatTookAPlace) {
  for (const char* what : {"it comes back", "another one comes", "what was kept is forgotten"}) {
    SCOPED_TRACE(what);
    SimulatedChain world(5, kAuditsAll);
    const std::string used = ask_rounded(world);
    if (what == std::string("what was kept is forgotten")) {
      world.conductor().forget(2);
    } else {
      world.kill(used);
      if (what == std::string("it comes back")) world.start(used);
    }
    const int64_t num_audits = world.num_rounded_audits();
    world.run_for(std::chrono::minutes(2));
    EXPECT_TRUE(world.is_done(2));
    EXPECT_EQ(world.num_rounded_audits(), num_audits);
    EXPECT_TRUE(world.accused().empty());
  }
}

TEST(Conductor, WhoDoesNotSayHowAllOfATextCameIsNotBelieved) {
  SimulatedChain world(5, {.kept_tokens = SimulatedChain::kKeptTokens});
  for (const char* server : {"a", "b"}) world.add_server(server, {0, 12});
  const auto prompt = prompt_of(1, 100);
  world.ask(1, prompt, 110);
  world.run_for(std::chrono::minutes(12));
  world.says_too_few_levels = true;
  world.ask(2, prompt, 110);
  world.run_for(std::chrono::minutes(1));
  expect_undisturbed(world, {{2, prompt}}, 10);
  EXPECT_TRUE(world.conductor().recoveries().contains("damaged"));
}

TEST(Conductor, WhateverBecomesOfServersTokensStayTheSame) {
  int64_t num_restored = 0;
  int64_t num_rounded = 0;
  int64_t num_rounded_audits = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    // Some layers are nobody's for seconds.
    SimulatedChain world(seed, {.first_patience = std::chrono::minutes(1),
                                .audit_fraction = seed % 8 == 0 ? 1 : 0.125,
                                .audits_rounded = seed % 8 == 0,
                                .kept_tokens = seed % 2 == 0 ? SimulatedChain::kKeptTokens : 0});
    world.add_crowd();
    if (seed % 4 == 0) world.round_after = Duration{};
    std::map<Conductor::Key, std::vector<uint64_t>> asked;
    const size_t num_new = 60;
    for (uint64_t key = 1; key <= 5; ++key) {
      // Some begin as others do.
      asked[key] = prompt_of(world.random(3), 1 + world.random(50));
      world.ask(key, asked[key], asked[key].size() + num_new);
    }
    for (int step = 0; step < 30; ++step) {
      world.run_for(milliseconds(world.random(200)));
      if (step % 10 == 9) {  // As one that is over, or not, or was lost.
        const uint64_t key = asked.size() + 1;
        const auto& other = world.texts().at(1 + world.random(5));
        asked[key] = {other.begin(), other.begin() + 1 + world.random(other.size())};
        world.ask(key, asked[key], asked[key].size() + num_new);
      }
      world.mishap(6);
    }
    world.mend_all();
    for (int i = 0; i < 600; ++i) {
      world.run_for(milliseconds(200));
      if (i % 5 == 0) world.tell();
    }
    for (const auto& [key, reason] : world.refused()) ADD_FAILURE() << key << ": " << reason;
    for (const auto& [key, prompt] : asked) {
      EXPECT_EQ(world.texts().at(key).size(), prompt.size() + num_new) << key;
    }
    expect_undisturbed(world, asked, num_new);
    EXPECT_EQ(world.conductor().num_sessions(), 0);
    for (const auto& [name, reason] : world.conductor().liars())
      ADD_FAILURE() << name << ": " << reason;
    num_restored += world.num_restored();
    num_rounded += world.num_rounded();
    num_rounded_audits += world.num_rounded_audits();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(num_restored, 100);
  EXPECT_GT(num_rounded, 100);
  EXPECT_GT(num_rounded_audits, 0);
}

}  // namespace
}  // namespace atl::chain
