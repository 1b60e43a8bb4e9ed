// Answers by chains of servers, which die, are stopped and are shut down under way, against those
// of the same model in one process: the same tokens, and the same bits of their scores.
#include "atoll/serve/chain_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <list>
#include <thread>

#include "atoll/chain/directory.h"
#include "atoll/chain/wire.h"
#include "atoll/serve/block_server.h"
#include "atoll/serve/local_generator.h"
#include "atoll/testing/memory_transport.h"
#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {
namespace {

using decoding::GenerationRequest;
using ::testing::HasSubstr;

const std::string kDigest(64, 'd');

/// The coordinator's part.
class DirectoryThread {
 public:
  explicit DirectoryThread(net::MemoryNetwork& network) {
    transport_ =
        network.make_transport([this](net::Event event) { inbox_.push(std::move(event)); });
    address_ = transport_->listen("coordinator:7").value();
    thread_ = std::thread([this] { run(); });
  }
  ~DirectoryThread() {
    stops_ = true;
    thread_.join();
  }

 private:
  void run() {
    // As one that has been there for long.
    chain::Directory directory(clock_.now() - chain::Directory::kHearing);
    const auto act = [&](chain::Directory::Actions actions) {
      for (auto& action : actions) {
        if (auto* send = std::get_if<chain::Directory::Send>(&action)) {
          std::ignore = transport_->send(send->to, chain::encode(send->message));
        } else if (auto* close = std::get_if<chain::Directory::Close>(&action)) {
          transport_->close(close->connection);
        }
      }
    };
    while (!stops_) {
      act(directory.tick(clock_.now()));
      const auto event = inbox_.pop(std::chrono::milliseconds(5));
      if (!event) continue;
      if (const auto* opened = std::get_if<net::Opened>(&*event)) {
        act(directory.opened(opened->connection, {}, clock_.now()));
      } else if (const auto* received = std::get_if<net::Received>(&*event)) {
        act(directory.received(received->connection, chain::decode(received->frame), clock_.now()));
      } else if (const auto* lost = std::get_if<net::Lost>(&*event)) {
        act(directory.lost(lost->connection, clock_.now()));
      }
    }
  }

  SystemClock clock_;
  swarm::Inbox<net::Event> inbox_{size_t{64} << 20};
  std::unique_ptr<net::Transport> transport_;
  std::string address_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

/// A copy of the model, with all weights times that.
std::unique_ptr<model::Model> copied(float scale) {
  auto made =
      std::make_unique<model::Model>(small_model().config(), at::kCPU, model::Purpose::kInference);
  made->parameters().values_P().copy_(small_model().parameters().values_P() * scale);
  return made;
}

class ServerThread {
 public:
  /// `scale`: of its weights; 1 where it is honest.
  ServerThread(net::MemoryNetwork& network, const std::string& name, chain::Span layers,
               BlockEngineOptions engine, float scale)
      : network_(network), name_(name) {
    transport_ =
        network.make_transport([this](net::Event event) { inbox_.push(std::move(event)); });
    BlockServerOptions options{
        .post = {.coordinator = "coordinator:7", .authority = {}, .tell = {}, .watch_digest = {}},
        .lease = {.name = name,
                  .address = transport_->listen(name + ":0").value(),
                  .model = "small",
                  .digest = kDigest,
                  .num_layers = 3,
                  .max_layers = 3,
                  .is_fixed = true,
                  .layers = layers,
                  .links = {}},
        .engine = engine,
        .load = [scale](model::LayerRange, const std::function<bool()>&) { return copied(scale); },
        .lending = {},
        .log =
            [this](const std::string& line) {
              const MutexLock lock(mutex_);
              log_ += line + '\n';
            }};
    server_ = std::make_unique<BlockServer>(std::move(options), *transport_, inbox_, clock_);
    thread_ = std::thread([this] { server_->run([this] { return stops_.load(); }); });
  }
  ~ServerThread() { stop(); }
  void kill() {
    network_.crash(*transport_);
    stop();
  }
  /// As SIGTERM does.
  void stop() {
    stops_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const std::string& name() const { return name_; }
  std::string log() const {
    const MutexLock lock(mutex_);
    return log_;
  }

 private:
  mutable Mutex mutex_;
  std::string log_ ATOLL_GUARDED_BY(mutex_);
  SystemClock clock_;
  net::MemoryNetwork& network_;
  const std::string name_;
  swarm::Inbox<net::Event> inbox_{size_t{64} << 20};
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<BlockServer> server_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

class ChainGeneratorTest : public ::testing::Test {
 protected:
  ChainGeneratorTest() : directory_(network_), alone_(small_model(), {}) {}

  void serve(const std::string& name, chain::Span layers, BlockEngineOptions engine = {},
             float scale = 1) {
    servers_.emplace_back(network_, name, layers, engine, scale);
  }
  ServerThread& server(const std::string& name) {
    return *std::ranges::find(servers_, name, &ServerThread::name);
  }
  std::unique_ptr<ChainGenerator> gateway(double audit_fraction = 0.125,
                                          chain::Precision precision = chain::Precision::kFp32) {
    return std::make_unique<ChainGenerator>(
        small_model(),
        ChainOptions{.post = {.coordinator = "coordinator:7",
                              .authority = {},
                              .tell = {},
                              .watch_digest = kDigest,
                              .watches = true},
                     .digest = kDigest,
                     .precision = precision,
                     .audit_fraction = audit_fraction,
                     .load = [] { return copied(1); }},
        [this](net::Transport::Sink sink) { return network_.make_transport(std::move(sink)); },
        clock_);
  }
  static std::vector<std::shared_ptr<Heard>> ask(decoding::Generator& generator,
                                                 const std::vector<GenerationRequest>& requests) {
    std::vector<std::shared_ptr<Heard>> heard;
    for (const GenerationRequest& request : requests) {
      heard.push_back(std::make_shared<Heard>());
      generator.generate(request, heard.back());
    }
    return heard;
  }
  /// Of what the model in this process says, to the bit.
  void expect_same(std::vector<std::shared_ptr<Heard>>& heard,
                   const std::vector<GenerationRequest>& requests) {
    auto expected = ask(alone_, requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->ids(), expected[i]->ids()) << i << " " << heard[i]->refusal().message;
      const auto same = [](const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
        return std::ranges::equal(a, b, [](const TokenScore& x, const TokenScore& y) {
          return x.id == y.id && x.logprob == y.logprob && x.top == y.top;
        });
      };
      EXPECT_TRUE(same(heard[i]->scores(), expected[i]->scores())) << i;
      EXPECT_TRUE(same(heard[i]->prompt_scores(), expected[i]->prompt_scores())) << i;
    }
  }
  static std::vector<GenerationRequest> requests(int64_t max_tokens) {
    std::vector<GenerationRequest> requests;
    for (uint64_t i = 0; i < 6; ++i) {
      requests.push_back({.prompt = text(i, 1 + static_cast<int64_t>(i * 37 % 90)),
                          .max_tokens = max_tokens,
                          .ends = {},
                          .sampler = {.temperature = i % 2 == 0 ? 0.0 : 1.0, .seed = i},
                          .top_logprobs = 2,
                          .scores_prompt = i == 3});
    }
    return requests;
  }

  SystemClock clock_;
  net::MemoryNetwork network_;
  DirectoryThread directory_;
  std::list<ServerThread> servers_;
  LocalGenerator alone_;
};

TEST_F(ChainGeneratorTest, ChainsGiveTheBitsOfOneProcess) {
  serve("a", {0, 1});
  serve("b", {1, 2});
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, requests(30));
  expect_same(heard, requests(30));
}

TEST_F(ChainGeneratorTest, GuessesSaveRoundTripsAndChangeNothing) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  const auto generator = gateway();
  std::vector<int64_t> again;
  for (int i = 0; i < 6; ++i) {
    for (const int64_t id : text(3, 12)) again.push_back(id);
  }
  const std::vector<GenerationRequest> asked{
      {.prompt = again, .max_tokens = 80, .ends = {}, .sampler = {}, .top_logprobs = 1},
      {.prompt = again,
       .max_tokens = 60,
       .ends = {},
       .sampler = {.temperature = 1.0, .seed = 5},
       .logit_bias = {{5, 30.0F}, {6, 30.0F}},  // So that some guesses are right.
       .top_logprobs = 1}};
  auto heard = ask(*generator, asked);
  expect_same(heard, asked);
  while (generator->status().made_tokens < 140) std::this_thread::yield();
  const decoding::GeneratorStatus status = generator->status();
  EXPECT_GT(status.drafted_tokens, 0);
  EXPECT_GT(status.accepted_tokens, 0);
  EXPECT_EQ(status.made_tokens, 140);
}

TEST_F(ChainGeneratorTest, WhatTextsBeginWithIsReadOnce) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  const auto generator = gateway();
  std::vector<GenerationRequest> asked;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    asked.push_back({.prompt = text(1, 75),
                     .max_tokens = 20,
                     .ends = {},
                     .sampler = {.temperature = 1.0, .seed = seed},
                     .top_logprobs = 1});
  }
  auto heard = ask(*generator, asked);
  expect_same(heard, asked);
  for (size_t i = 1; i < asked.size(); ++i) EXPECT_EQ(heard[i]->num_cached(), 74);
}

TEST_F(ChainGeneratorTest, AServerThatIsKilledUnderWayIsReplaced) {
  serve("a", {0, 1});
  serve("b", {1, 2});
  serve("b2", {1, 3});
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, requests(90));
  while (generator->status().made_tokens < 100)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server("b").kill();
  while (generator->status().made_tokens < 200)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server("c").stop();
  expect_same(heard, requests(90));
}

TEST_F(ChainGeneratorTest, HonestServersAreFoundToBeSo) {
  serve("a", {0, 1});
  serve("b", {1, 3});
  for (const auto precision :
       {chain::Precision::kFp32, chain::Precision::kBf16, chain::Precision::kInt8}) {
    const auto generator = gateway(1, precision);
    std::vector<GenerationRequest> asked = requests(60);
    for (uint64_t seed = 0; seed < 8; ++seed) {  // With guesses, most of them wrong.
      asked.push_back({.prompt = {5, 6, 7, 5, 6, 7, 5, 6},
                       .max_tokens = 80,
                       .ends = {},
                       .sampler = {.temperature = 1.0, .seed = seed},
                       .logit_bias = {{5, 30.0F}, {6, 30.0F}, {7, 30.0F}}});
    }
    auto heard = ask(*generator, asked);
    for (const auto& each : heard) EXPECT_TRUE(each->wait()) << each->refusal().message;
    while (generator->status().audited_tokens < 300) std::this_thread::yield();
    EXPECT_EQ(generator->status().liars, 0);
    EXPECT_TRUE(generator->status().recoveries.empty());
    EXPECT_LT(generator->status().accepted_tokens, generator->status().drafted_tokens);
  }
}

TEST_F(ChainGeneratorTest, AServerWithOtherWeightsIsFoundAndNotUsedAnyMore) {
  serve("a", {0, 1});
  serve("b", {1, 2}, {}, 1.01F);
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, {{.prompt = text(1, 20), .max_tokens = 200, .sampler = {}}});
  while (generator->status().liars == 0) std::this_thread::yield();
  EXPECT_LE(generator->status().made_tokens, 300);
  while (server("b").log().find("does not use this server any more: its rows are off by") ==
         std::string::npos) {
    std::this_thread::yield();
  }
  serve("b2", {1, 2});
  EXPECT_TRUE(heard[0]->wait()) << heard[0]->refusal().message;
  auto after = ask(*generator, requests(30));
  expect_same(after, requests(30));
  EXPECT_EQ(generator->status().liars, 1);
}

TEST_F(ChainGeneratorTest, SessionsThatDoNotFitWaitForEachOther) {
  serve("a", {0, 3}, {.kv_bytes = 8 * 3 * 2 * 2 * 32 * 6 * 4});
  const auto generator = gateway();
  auto heard = ask(*generator, requests(60));
  expect_same(heard, requests(60));
}

TEST_F(ChainGeneratorTest, ARequestThatNobodyCanServeSaysWhichLayersAreMissing) {
  serve("a", {0, 1});
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, {{.prompt = {1, 2}, .max_tokens = 3, .ends = {}, .sampler = {}}});
  EXPECT_EQ(heard[0]->wait(), std::nullopt);
  EXPECT_EQ(heard[0]->refusal().kind, Refusal::Kind::kUnavailable);
  EXPECT_THAT(heard[0]->refusal().message, HasSubstr("no server holds the layers 1 to 1 of 3"));
}

}  // namespace
}  // namespace atl::serve
