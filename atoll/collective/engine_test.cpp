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
using testing::HasSubstr;

/// Keeps what was sent, by connection.
class SentFrames final : public net::Transport {
 public:
  Result<std::string> listen(const std::string& address) override { return address; }
  net::ConnectionId connect(const std::string&, net::Plane) override { return ++last_; }
  net::Sent send(net::ConnectionId connection, Bytes frame) override {
    sent[connection].push_back(swarm::decode(frame));
    return net::Sent::kAccepted;
  }
  void close(net::ConnectionId) override {}
  net::Traffic traffic() const override { return {}; }

  std::map<net::ConnectionId, std::vector<swarm::Message>> sent;

 private:
  net::ConnectionId last_ = 0;
};

/// Island "a" of "a" and "b", in training. The test speaks for the coordinator and for "b".
class EngineTest : public testing::Test, public EngineListener {
 protected:
  static constexpr net::ConnectionId kControl = 1;
  static constexpr net::ConnectionId kBulk = 100;
  static constexpr size_t kCount = 1000;

  EngineTest() {
    engine_.connect(now_);
    handle(net::Opened{.connection = kControl});
    from_coordinator(swarm::Welcome{.header = header()});
    engine_.ready({.checkpoints = {{0, "p0"}}});
    from_coordinator(swarm::Start{.header = header(), .members = {{"a", "a:1"}, {"b", "b:1"}}});
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
  void welcomed(const std::string&, const std::string&) override {}
  void started(const StartInfo&) override {}
  void committed(const Commit&) override {}
  void left() override {}
  void failed(const std::string&) override {}

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

}  // namespace
}  // namespace atl::collective
