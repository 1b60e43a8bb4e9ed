#pragma once
// Chains of servers of a small model in one process, their coordinator and gateways, over a network
// that can lose a machine. What they answer is compared with what the same model says alone.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "atoll/chain/directory.h"
#include "atoll/chain/wire.h"
#include "atoll/grammar/json_schema.h"
#include "atoll/serve/block_server.h"
#include "atoll/serve/chain_generator.h"
#include "atoll/serve/local_generator.h"
#include "atoll/testing/memory_transport.h"
#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {

using decoding::GenerationRequest;

inline const std::string kDigest(64, 'd');

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
inline std::unique_ptr<model::Model> copied(float scale) {
  auto made =
      std::make_unique<model::Model>(small_model().config(), at::kCPU, model::Purpose::kInference);
  made->parameters().values_P().copy_(small_model().parameters().values_P() * scale);
  return made;
}

/// What a server says is changed on its way.
using Change = std::function<void(chain::Message&)>;

class ChangingTransport final : public net::Transport {
 public:
  ChangingTransport(std::unique_ptr<net::Transport> inner, Change change)
      : inner_(std::move(inner)), change_(std::move(change)) {}

  Result<std::string> listen(const std::string& address) override {
    return inner_->listen(address);
  }
  net::ConnectionId connect(const std::string& address, net::Plane plane) override {
    return inner_->connect(address, plane);
  }
  net::ConnectionId meet(const net::Meeting& meeting, net::Plane plane) override {
    return inner_->meet(meeting, plane);
  }
  net::Sent send(net::ConnectionId connection, Bytes frame) override {
    chain::Message message = chain::decode(frame);
    change_(message);
    return inner_->send(connection, chain::encode(message));
  }
  void close(net::ConnectionId connection) override { inner_->close(connection); }
  net::Traffic traffic() const override { return inner_->traffic(); }

 private:
  std::unique_ptr<net::Transport> inner_;
  Change change_;
};

class ServerThread {
 public:
  /// `scale`: of its weights; 1 where it is honest.
  ServerThread(net::MemoryNetwork& network, const std::string& name, chain::Span layers,
               BlockEngineOptions engine, float scale, Change change)
      : network_(network), name_(name) {
    transport_ =
        network.make_transport([this](net::Event event) { inbox_.push(std::move(event)); });
    machine_ = transport_.get();
    if (change) {
      transport_ = std::make_unique<ChangingTransport>(std::move(transport_), std::move(change));
    }
    BlockServerOptions options{
        .post = {.coordinator = "coordinator:7", .authority = {}, .tell = {}},
        .lease = {.name = name,
                  .address = transport_->listen(name + ":0").value(),
                  .model = "small",
                  .digest = kDigest,
                  .num_layers = 3,
                  .max_layers = 3,
                  .has_head = engine.has_head,
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
    network_.crash(*machine_);
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
  net::Transport* machine_ = nullptr;  // The same, or what it changes.
  std::unique_ptr<BlockServer> server_;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

/// A grammar over the model's ids, of which those from 10 are lower-case letters.
inline std::shared_ptr<const grammar::TokenMasks> letters() {
  std::vector<std::string> tokens(61);
  for (size_t id = 10; id < 61; ++id) tokens[id] = std::string(1, static_cast<char>('a' + id % 26));
  const std::vector<std::string> words{"abcabcabcabcabcabc", "abdabdabdabdabd",
                                       "bcdbcdbcdbcdbcdbcd"};
  return std::make_shared<grammar::TokenMasks>(
      grammar::choice_grammar(words),
      std::make_shared<grammar::Vocabulary>(tokens, std::vector<grammar::TokenId>{0}));
}

/// A model that guesses, or none.
struct Draft {
  const model::Model* model = nullptr;
  int64_t kv_bytes = int64_t{1} << 30;
  int64_t max_drafts = 16;
};

class ChainSwarm : public ::testing::Test {
 protected:
  ChainSwarm() : directory_(network_), alone_(small_model(), {}) {}

  void serve(const std::string& name, chain::Span layers, BlockEngineOptions engine = {},
             float scale = 1, Change change = {}) {
    servers_.emplace_back(network_, name, layers, engine, scale, std::move(change));
  }
  ServerThread& server(const std::string& name) {
    return *std::ranges::find(servers_, name, &ServerThread::name);
  }
  std::unique_ptr<ChainGenerator> gateway(const Draft& draft) {
    return gateway(0.125, chain::Precision::kFp32, draft);
  }
  std::unique_ptr<ChainGenerator> gateway(double audit_fraction = 0.125,
                                          chain::Precision precision = chain::Precision::kFp32,
                                          const Draft& draft = {}) {
    return gateway_of(small_model(), {.post = {},
                                      .digest = kDigest,
                                      .precision = precision,
                                      .max_drafts = draft.max_drafts,
                                      .draft = draft.model,
                                      .draft_kv_bytes = draft.kv_bytes,
                                      .audit_fraction = audit_fraction,
                                      .load = [] { return copied(1); }});
  }
  /// One whose weights are 0: it needs the servers' embedding and head.
  std::unique_ptr<ChainGenerator> headless_gateway(const Draft& draft = {}) {
    static const model::Model zero(small_model().config(), at::kCPU, model::Purpose::kInference);
    return gateway_of(zero, {.post = {},
                             .digest = kDigest,
                             .needs_head = true,
                             .max_drafts = draft.max_drafts,
                             .draft = draft.model,
                             .draft_kv_bytes = draft.kv_bytes});
  }
  std::unique_ptr<ChainGenerator> gateway_of(const model::Model& model, ChainOptions options) {
    options.post = {
        .coordinator = "coordinator:7", .authority = {}, .tell = {}, .watches = kDigest};
    return std::make_unique<ChainGenerator>(
        model, std::move(options),
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
      EXPECT_TRUE(heard[i]->scores() == expected[i]->scores()) << i;
      EXPECT_TRUE(heard[i]->prompt_scores() == expected[i]->prompt_scores()) << i;
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

}  // namespace atl::serve
