// Sessions and a coordinator as real threads, over the in-memory transport (under ThreadSanitizer
// too).
#include "atoll/collective/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>

#include "atoll/base/error.h"
#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/testing/memory_transport.h"

namespace atl::collective {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A coordinator on a thread of its own.
class Coordinating {
 public:
  Coordinating(net::MemoryNetwork& network, const Clock& clock, int64_t replicas,
               Duration silence_timeout = std::chrono::seconds(30))
      : Coordinating(
            network, clock,
            std::vector<swarm::ServedRun>{{.options = {.run = "r1",
                                                       .config = "text",
                                                       .replicas = replicas,
                                                       .silence_timeout = silence_timeout}}}) {}
  Coordinating(net::MemoryNetwork& network, const Clock& clock, std::vector<swarm::ServedRun> runs)
      : server_(
            std::move(runs),
            [&](net::Transport::Sink sink) { return network.make_transport(std::move(sink)); },
            clock),
        address_(server_.listen("coordinator:0").value()),
        thread_([this] { result_ = server_.run([this] { return num_stops.load(); }); }) {}

  ~Coordinating() { num_stops = 2; }

  const std::string& address() const { return address_; }
  Result<void> result() {
    thread_.join();
    return *result_;
  }
  std::atomic<int> num_stops{0};

 private:
  swarm::CoordinatorServer server_;
  std::string address_;
  std::optional<Result<void>> result_;
  std::jthread thread_;
};

class SessionTest : public testing::Test {
 protected:
  Result<std::unique_ptr<Session>> connect(const std::string& coordinator, const std::string& name,
                                           net::Transport** transport = nullptr,
                                           const std::string& run_name = "") {
    return Session::connect(
        {.coordinator = coordinator,
         .run_name = run_name,
         .listen = name + ":0",
         .name = name,
         .connect_patience = std::chrono::milliseconds(300),
         .work_share = 0.25},
        [&](net::Transport::Sink sink) {
          auto made = network_.make_transport(std::move(sink));
          if (transport != nullptr) *transport = made.get();
          return made;
        },
        clock_);
  }

  /// One island's life; returns the last mean.
  std::vector<float> train(const std::string& coordinator, const std::string& name, float value,
                           int64_t num_rounds) {
    auto session = connect(coordinator, name).value();
    EXPECT_EQ(session->config_text(), "text");
    const auto start = session->ready({.checkpoints = {{0, "p0"}}}).value();
    ++num_started_;
    EXPECT_EQ(start.members[static_cast<size_t>(start.number)], name);
    std::vector<float> mean;
    for (int64_t round = 10; round < 10 + num_rounds; ++round) {
      const std::vector<float> values(100'000, value + static_cast<float>(round));
      session->begin({.round = round,
                      .step = round,
                      .weight = 1,
                      .values = values,
                      .codec = codec_.get(),
                      .prepare = [&mean](std::span<const float> result, std::span<const float>) {
                        mean.assign(result.begin(), result.end());
                        return sha256(std::as_bytes(result));
                      }});
      session->report({.step = round, .loss = 1, .tokens_per_s = 2});
      const auto commit = session->wait(round);
      EXPECT_TRUE(commit.has_value()) << commit.error().message;
      if (!commit || commit->stop) break;
      EXPECT_GT(commit->seconds, 0);
      EXPECT_GT(commit->bytes_sent, 4 * 100'000);  // Of two or three members, with headers.
      EXPECT_LT(commit->bytes_sent, 2 * 4 * 100'000);
    }
    const auto left = session->leave();
    EXPECT_TRUE(left.has_value()) << left.error().message;
    EXPECT_GT(session->stats().bytes_sent, 0);
    return mean;
  }

  const std::unique_ptr<codec::Codec> codec_ = codec::make_codec("fp32");
  net::MemoryNetwork network_;
  SystemClock clock_;
  std::atomic<int> num_started_{0};
};

TEST_F(SessionTest, ThreeIslandsAverage) {
  Coordinating coordinator(network_, clock_, 3);
  std::vector<std::jthread> threads;
  std::vector<std::vector<float>> means(3);
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      means[i] = train(coordinator.address(), std::string(1, static_cast<char>('a' + i)),
                       static_cast<float>(i), 20);
    });
  }
  threads.clear();
  EXPECT_TRUE(coordinator.result().has_value());
  for (const auto& mean : means) {
    EXPECT_EQ(mean, means[0]);
    EXPECT_NEAR(mean.front(), 30, 1e-4);  // 29 + mean of 0, 1, 2.
  }
}

TEST_F(SessionTest, RunsOfOneCoordinatorEndApart) {
  const auto run_of = [](const std::string& name, const std::string& config) {
    return swarm::ServedRun{.name = name,
                            .options = {.run = "id-" + name, .config = config, .replicas = 1}};
  };
  std::vector<swarm::ServedRun> runs = {run_of("a", "text of a"), run_of("b", "text of b"),
                                        run_of("c", "text of c")};
  std::atomic<int> num_ended = 0;
  for (auto& run : runs) run.callbacks.on_end = [&] { ++num_ended; };
  runs[1].callbacks.persist = [](const swarm::Record& record) {
    if (std::holds_alternative<swarm::Committed>(record)) throw InputError("the disk is full");
  };
  Coordinating coordinator(network_, clock_, std::move(runs));
  const auto join = [&](const std::string& run) {  // All have one name.
    auto session = connect(coordinator.address(), "i", nullptr, run).value();
    EXPECT_EQ(session->config_text(), "text of " + run);
    EXPECT_EQ(session->run(), "id-" + run);
    EXPECT_TRUE(session->ready({.checkpoints = {{0, "p0"}}}));
    return session;
  };
  auto a = join("a");
  auto b = join("b");
  auto c = join("c");
  const std::vector<float> values(1000, 1.0F);
  const auto begin = [&](Session& session, int64_t round) {
    session.begin({.round = round,
                   .step = round + 1,
                   .weight = 1,
                   .values = values,
                   .codec = codec_.get(),
                   .prepare = [](auto, auto) { return Digest{}; }});
  };
  for (const std::string name : {"", "d"}) {
    const auto refused = connect(coordinator.address(), "j", nullptr, name);
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message, HasSubstr("a, b, c"));
  }
  // b's coordinator cannot keep the commit: nobody hears of it, and b waits.
  begin(*b, 0);
  while (num_ended < 1) std::this_thread::yield();
  EXPECT_FALSE(b->is_decided(0));
  begin(*a, 0);
  EXPECT_TRUE(a->wait(0).has_value());
  EXPECT_TRUE(a->leave().has_value());
  while (num_ended < 2) std::this_thread::yield();
  const auto late = connect(coordinator.address(), "j", nullptr, "a");
  ASSERT_FALSE(late.has_value());
  EXPECT_THAT(late.error().message, HasSubstr("the run 'a' is over"));
  const auto absent = connect(coordinator.address(), "j", nullptr, "b");
  ASSERT_FALSE(absent.has_value());
  EXPECT_THAT(absent.error().message, HasSubstr("no coordinator answered"));
  begin(*c, 0);
  EXPECT_TRUE(c->wait(0).has_value());
  EXPECT_TRUE(c->leave().has_value());
  const auto result = coordinator.result();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().message, "1 of 3 runs failed:\n  b: the disk is full");
  EXPECT_FALSE(b->is_decided(0));
}

TEST(RestAfterTest, KeepsWorkToItsShareOfTheTime) {
  EXPECT_EQ(rest_after(std::chrono::milliseconds(6), 1.0), Duration{});
  EXPECT_EQ(rest_after(std::chrono::milliseconds(6), 0.5), std::chrono::milliseconds(6));
  EXPECT_EQ(rest_after(std::chrono::milliseconds(6), 0.25), std::chrono::milliseconds(18));
  EXPECT_EQ(rest_after(std::chrono::seconds(3), 0.01), std::chrono::seconds(5)) << "the longest";
}

TEST_F(SessionTest, CoordinatorStopsAll) {
  Coordinating coordinator(network_, clock_, 2);
  std::jthread a([&] { train(coordinator.address(), "a", 0, 1'000'000); });
  std::jthread b([&] { train(coordinator.address(), "b", 0, 1'000'000); });
  while (num_started_ < 2) std::this_thread::yield();
  coordinator.num_stops = 1;
  a.join();
  b.join();
  EXPECT_TRUE(coordinator.result().has_value());
}

TEST_F(SessionTest, LostIslandDoesNotHoldTheOthersUp) {
  Coordinating coordinator(network_, clock_, 2);
  net::Transport* transport = nullptr;
  std::unique_ptr<Session> other;
  std::jthread thread([&] {
    other = connect(coordinator.address(), "b", &transport).value();
    EXPECT_TRUE(other->ready({.checkpoints = {{0, "p0"}}}).has_value());
  });
  auto session = connect(coordinator.address(), "a").value();
  ASSERT_TRUE(session->ready({.checkpoints = {{0, "p0"}}}).has_value());
  thread.join();
  const std::vector<float> values(1000, 1.0F);
  session->begin({.round = 0,
                  .step = 1,
                  .weight = 1,
                  .values = values,
                  .codec = codec_.get(),
                  .prepare = [](auto, auto) { return Digest{}; }});
  network_.crash(*transport);
  const auto commit = session->wait(0);
  ASSERT_TRUE(commit.has_value()) << commit.error().message;
  EXPECT_THAT(commit->members, ElementsAre("a"));
  EXPECT_EQ(commit->own_share, 1.0);
  EXPECT_TRUE(session->leave().has_value());
  EXPECT_TRUE(coordinator.result().has_value());
}

TEST_F(SessionTest, LongOuterStepIsNoSilence) {
  constexpr Duration kSilence = std::chrono::seconds(3);  // Three signs of life.
  Coordinating coordinator(network_, clock_, 2, kSilence);
  const auto live = [&](const std::string& name) {
    auto session = connect(coordinator.address(), name).value();
    EXPECT_TRUE(session->ready({.checkpoints = {{0, "p0"}}, .silence_timeout = kSilence}));
    const std::vector<float> values(1000, 1.0F);
    session->begin({.round = 0,
                    .step = 1,
                    .weight = 1,
                    .values = values,
                    .codec = codec_.get(),
                    .prepare = [=](auto, auto) {
                      std::this_thread::sleep_for(1.5 * kSilence);
                      return Digest{};
                    }});
    const auto commit = session->wait(0);
    EXPECT_TRUE(commit.has_value()) << commit.error().message;
    EXPECT_TRUE(session->leave().has_value());
  };
  std::jthread a([&] { live("a"); });
  std::jthread b([&] { live("b"); });
  a.join();
  b.join();
  EXPECT_TRUE(coordinator.result().has_value());
}

/// Two islands, of which "b" lives on another thread for as long as the test needs it.
class OuterStepTest : public SessionTest {
 protected:
  OuterStepTest() {
    std::jthread thread([this] { b_ = join("b", &b_transport_); });
    a_ = join("a", nullptr);
  }
  std::unique_ptr<Session> join(const std::string& name, net::Transport** transport) {
    auto session = connect(coordinator_.address(), name, transport).value();
    EXPECT_TRUE(session->ready({.checkpoints = {{0, "p0"}}}));
    return session;
  }
  void begin(Session& session, std::function<Digest()> prepare) {
    session.begin({.round = 0,
                   .step = 1,
                   .weight = 1,
                   .values = values_,
                   .codec = codec_.get(),
                   .prepare = [prepare = std::move(prepare)](auto, auto) { return prepare(); }});
  }

  /// Both begin a round. Returns while the outer step of "a" runs, which takes so long.
  void begin_slowly(std::chrono::milliseconds duration) {
    begin(*a_, [this, duration] {
      begun_ = true;
      std::this_thread::sleep_for(duration);
      ended_ = true;
      return Digest{};
    });
    begin(*b_, [] { return Digest{}; });
    while (!begun_) std::this_thread::yield();
  }

  const std::vector<float> values_ = std::vector<float>(1000, 1.0F);
  Coordinating coordinator_{network_, clock_, 2};
  net::Transport* b_transport_ = nullptr;
  std::atomic<bool> begun_ = false;  // The outer step of "a".
  std::atomic<bool> ended_ = false;
  std::unique_ptr<Session> a_;
  std::unique_ptr<Session> b_;
};

TEST_F(OuterStepTest, WaitFailsOnlyOnceItIsOver) {
  begin_slowly(std::chrono::milliseconds(500));
  coordinator_.num_stops = 2;
  const auto commit = a_->wait(0);
  EXPECT_TRUE(ended_);
  ASSERT_FALSE(commit.has_value());
  EXPECT_THAT(commit.error().message, HasSubstr("the coordinator was interrupted"));
  EXPECT_EQ(a_->ending(), swarm::Ending::kFailure);
}

TEST_F(OuterStepTest, SessionIsGoneOnlyOnceItIsOver) {
  begin_slowly(std::chrono::milliseconds(200));
  a_ = nullptr;
  EXPECT_TRUE(ended_);
}

TEST_F(OuterStepTest, WhatItThrowsEndsTheRunForThisIslandAlone) {
  begin(*a_, []() -> Digest { throw std::runtime_error("no memory left"); });
  begin(*b_, [] { return Digest{}; });
  const auto failed = a_->wait(0);
  ASSERT_FALSE(failed.has_value());
  EXPECT_THAT(failed.error().message,
              HasSubstr("the outer step of round 0 failed: no memory left"));
  const auto commit = b_->wait(0);
  ASSERT_TRUE(commit.has_value()) << commit.error().message;
  EXPECT_THAT(commit->members, ElementsAre("b"));
}

TEST_F(SessionTest, WhoComesLaterFetchesTheState) {
  Coordinating coordinator(network_, clock_, 1);
  auto a = connect(coordinator.address(), "a").value();
  ASSERT_TRUE(a->ready({.checkpoints = {{0, "p0"}}}).has_value());
  const auto state = std::make_shared<const Bytes>(10'000'000, std::byte{42});  // Several pieces.
  a->serve_state([&](int32_t fragment, int64_t round) {
    return fragment == 0 && round == 0 ? state : nullptr;
  });
  const std::vector<float> values(1000, 1.0F);
  a->begin({.round = 0,
            .step = 1,
            .weight = 1,
            .values = values,
            .codec = codec_.get(),
            .prepare = [&](auto, auto) { return tree_digest(*state); }});
  ASSERT_TRUE(a->wait(0).has_value());
  auto b = connect(coordinator.address(), "b").value();
  const auto start = b->ready({.checkpoints = {{0, "p0"}}});
  ASSERT_TRUE(start.has_value()) << start.error().message;
  EXPECT_TRUE(start->joins);
  EXPECT_EQ(start->step, 1);
  const auto fetched = b->fetch_state(0, state->size());
  ASSERT_TRUE(fetched.has_value()) << fetched.error().message;
  EXPECT_EQ(fetched->bytes, *state);
  EXPECT_EQ(fetched->digest, tree_digest(*state));
  EXPECT_EQ(fetched->round, 0);
  EXPECT_GE(b->next_unit().value(), 0);
  EXPECT_TRUE(a->leave().has_value());
  EXPECT_TRUE(b->leave().has_value());
  EXPECT_TRUE(coordinator.result().has_value());
}

TEST_F(SessionTest, SessionThatEndsEarlyIsLeftOut) {
  Coordinating coordinator(network_, clock_, 2);
  std::jthread thread([&] {
    auto other = connect(coordinator.address(), "b").value();
    EXPECT_TRUE(other->ready({.checkpoints = {{0, "p0"}}}).has_value());
  });
  auto session = connect(coordinator.address(), "a").value();
  ASSERT_TRUE(session->ready({.checkpoints = {{0, "p0"}}}).has_value());
  thread.join();
  EXPECT_TRUE(session->leave().has_value());
  EXPECT_TRUE(coordinator.result().has_value());
}

TEST_F(SessionTest, AbsentCoordinatorAndBadAddressAreReported) {
  const auto absent = connect("nobody:1", "a");
  ASSERT_FALSE(absent.has_value());
  EXPECT_THAT(absent.error().message, HasSubstr("no coordinator answered at 'nobody:1'"));
  const auto bad = connect("nonsense", "a");
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().message, HasSubstr("nonsense"));
}

TEST_F(SessionTest, PortInUseIsReported) {
  net::MemoryNetwork& network = network_;
  auto holder = network.make_transport([](net::Event) {});
  const std::string address = holder->listen("a:0").value();
  const auto session = Session::connect(
      {.coordinator = "c:1", .listen = address, .name = "a"},
      [&](net::Transport::Sink sink) { return network.make_transport(std::move(sink)); }, clock_);
  ASSERT_FALSE(session.has_value());
  EXPECT_THAT(session.error().message, HasSubstr(address));
}

}  // namespace
}  // namespace atl::collective
