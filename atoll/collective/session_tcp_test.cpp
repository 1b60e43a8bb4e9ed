// Sessions over real sockets: three islands and a coordinator in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/session.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/net/tcp_transport.h"

namespace atl::collective {
namespace {

using testing::HasSubstr;

class TcpSessionTest : public testing::Test {
 protected:
  net::TransportFactory transports() {
    return [this](net::Transport::Sink sink) {
      return net::make_tcp_transport({}, clock_, std::move(sink));
    };
  }
  Result<std::unique_ptr<Session>> connect(const std::string& name) {
    return Session::connect(
        {.coordinator = address_, .name = name, .connect_patience = std::chrono::seconds(1)},
        transports(), clock_);
  }
  void coordinate(int64_t replicas) {
    server_.emplace(std::vector<swarm::ServedRun>{{.options = {.run = "r1", .replicas = replicas}}},
                    transports(), clock_);
    address_ = server_->listen("127.0.0.1:0").value();
    thread_ = std::jthread([this] { result_ = server_->run({}); });
  }

  SystemClock clock_;
  std::optional<swarm::CoordinatorServer> server_;
  std::string address_ = "127.0.0.1:9";
  std::optional<Result<void>> result_;
  std::jthread thread_;
};

class TcpTopologyTest : public TcpSessionTest, public testing::WithParamInterface<Topology> {};

INSTANTIATE_TEST_SUITE_P(Both, TcpTopologyTest,
                         testing::Values(Topology::kScatter, Topology::kGather));

TEST_P(TcpTopologyTest, ThreeIslandsAverageAMillionValues) {
  const Topology topology = GetParam();
  coordinate(3);
  std::vector<std::vector<float>> means(3);
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      auto session = connect(std::string(1, static_cast<char>('a' + i))).value();
      ASSERT_TRUE(session->ready({.checkpoints = {{0, "p0"}}}).has_value());
      const auto codec = codec::make_codec("bf16");
      std::vector<float> values(1'000'000);
      for (int64_t round = 0; round < 3; ++round) {
        for (size_t j = 0; j < values.size(); ++j) {
          values[j] = static_cast<float>(random_uniform(i, static_cast<uint64_t>(round), j));
        }
        session->begin({.round = round,
                        .step = round + 1,
                        .weight = static_cast<int64_t>(100 + i),
                        .values = values,
                        .codec = codec.get(),
                        .topology = topology,
                        .prepare = [&, i](std::span<const float> mean, std::span<const float>) {
                          means[i].assign(mean.begin(), mean.end());
                          return sha256(std::as_bytes(mean));
                        }});
        const auto commit = session->wait(round);
        ASSERT_TRUE(commit.has_value()) << commit.error().message;
      }
      EXPECT_TRUE(session->leave().has_value());
      EXPECT_GT(session->stats().bytes_sent, 3 * 2 * 1'000'000);
    });
  }
  threads.clear();
  thread_.join();
  EXPECT_TRUE(result_->has_value());
  EXPECT_EQ(means[0], means[1]);
  EXPECT_EQ(means[0], means[2]);
  EXPECT_EQ(means[0].size(), 1'000'000U);
}

TEST_F(TcpSessionTest, AbsentCoordinatorIsReportedAfterThePatience) {
  const auto session = connect("a");
  ASSERT_FALSE(session.has_value());
  EXPECT_THAT(session.error().message, HasSubstr("no coordinator answered at '127.0.0.1:9'"));
}

TEST_F(TcpSessionTest, PortInUseIsReported) {
  coordinate(2);
  swarm::CoordinatorServer second({{.options = {.run = "r2"}}}, transports(), clock_);
  const auto bound = second.listen(address_);
  ASSERT_FALSE(bound.has_value());
  EXPECT_THAT(bound.error().message, HasSubstr(address_));
  auto a = connect("a").value();
  auto b = connect("b").value();
  std::jthread other([&] { EXPECT_TRUE(b->ready({.checkpoints = {{0, "p"}}}).has_value()); });
  ASSERT_TRUE(a->ready({.checkpoints = {{0, "p"}}}).has_value());
  other.join();
  b.reset();  // Leaves without a word.
  EXPECT_TRUE(a->leave().has_value());
  thread_.join();
  EXPECT_TRUE(result_->has_value());
}

}  // namespace
}  // namespace atl::collective
