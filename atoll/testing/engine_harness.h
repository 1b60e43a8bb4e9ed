#pragma once
// For tests: one engine alone, its transport and both sides of its connections played by the test.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "atoll/codec/codec.h"
#include "atoll/collective/engine.h"
#include "atoll/testing/sent_frames.h"

namespace atl::collective {

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

  Time now_{std::chrono::seconds(1)};
  const std::vector<float> values_ = std::vector<float>(kCount, 1.0F);
  const std::unique_ptr<codec::Codec> codec_ = codec::make_codec("fp32");
  SentFrames transport_;
  Engine engine_{{.name = "a"}, "a:1", transport_, *this};
};

}  // namespace atl::collective
