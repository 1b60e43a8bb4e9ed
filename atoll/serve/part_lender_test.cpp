// Who gets pieces of a model from a server, by its certificate; and that who asks for too many is
// left alone.
#include "atoll/serve/part_lender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "atoll/chain/wire.h"
#include "atoll/serve/block_server.h"

namespace atl::serve {
namespace {

using chain::Want;
using ::testing::ElementsAre;

/// Keeps what is sent.
class Recorder : public net::Transport {
 public:
  Result<std::string> listen(const std::string& address) override { return address; }
  net::ConnectionId connect(const std::string& /*address*/, net::Plane /*plane*/) override {
    return 1000;  // The coordinator's, which never answers.
  }
  net::ConnectionId meet(const net::Meeting& /*meeting*/, net::Plane /*plane*/) override {
    return 0;
  }
  net::Sent send(net::ConnectionId connection, Bytes frame) override {
    const MutexLock lock(mutex_);
    if (connection != 1000) sent_.emplace_back(connection, chain::decode(frame));
    return net::Sent::kAccepted;
  }
  void close(net::ConnectionId connection) override {
    const MutexLock lock(mutex_);
    closed_.push_back(connection);
  }
  net::Traffic traffic() const override { return {}; }

  size_t num_done() const {
    const MutexLock lock(mutex_);
    return sent_.size() + closed_.size();
  }
  std::vector<std::pair<net::ConnectionId, chain::Message>> sent() const {
    const MutexLock lock(mutex_);
    return sent_;
  }
  std::vector<net::ConnectionId> closed() const {
    const MutexLock lock(mutex_);
    return closed_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::pair<net::ConnectionId, chain::Message>> sent_ ATOLL_GUARDED_BY(mutex_);
  std::vector<net::ConnectionId> closed_ ATOLL_GUARDED_BY(mutex_);
};

class LendingTest : public ::testing::Test {
 protected:
  void come(net::ConnectionId line, std::optional<identity::Role> role) {
    net::Opened opened{
        .connection = line, .inbound = true, .plane = net::Plane::kBulk, .remote = {}};
    if (role) {
      opened.certificate.emplace();
      opened.certificate->peer = {.run = {}, .role = *role, .name = "other"};
    }
    inbox_.push(opened);
  }
  void ask(net::ConnectionId line, int64_t piece) {
    inbox_.push(net::Received{line, chain::encode(Want{.model = "ab", .part = 2, .piece = piece})});
  }
  /// Until so much was said and closed.
  void run(size_t num_done, PartLenderOptions lending) {
    BlockServer server({.post = {.coordinator = "c:1", .authority = {}, .tell = {}},
                        .lease = {.name = "a",
                                  .address = "a:1",
                                  .model = "m",
                                  .digest = "ab",
                                  .num_layers = 3,
                                  .max_layers = 3,
                                  .links = {}},
                        .engine = {},
                        .load = {},
                        .lending = std::move(lending),
                        .log = [](const std::string&) {}},
                       transport_, inbox_, clock_);
    server.run([&] { return transport_.num_done() >= num_done; });
  }
  static PartLenderOptions all() {
    return {.read = [](const Want& want) -> std::optional<Bytes> {
      if (want.piece == 7) return std::nullopt;
      return Bytes(static_cast<size_t>(want.piece), std::byte{1});
    }};
  }

  SystemClock clock_;
  swarm::Inbox<net::Event> inbox_{1 << 20};
  Recorder transport_;
};

TEST_F(LendingTest, ServersGetPiecesAndSoDoesWhoeverComesInTheClear) {
  come(1, identity::Role::kServer);
  come(2, std::nullopt);
  ask(1, 5);
  ask(2, 7);
  run(2, all());
  const auto sent = transport_.sent();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].first, 1U);
  const auto& piece = std::get<chain::Piece>(sent[0].second);
  EXPECT_EQ(piece.model, "ab");
  EXPECT_EQ(piece.part, 2);
  EXPECT_EQ(piece.piece, 5);
  EXPECT_EQ(piece.bytes, Bytes(5, std::byte{1}));
  EXPECT_EQ(sent[1].first, 2U);
  EXPECT_TRUE(std::get<chain::Piece>(sent[1].second).bytes.empty()) << "it is not here";
}

TEST_F(LendingTest, OthersAreRefused) {
  const std::vector<identity::Role> roles = {identity::Role::kGateway, identity::Role::kIsland,
                                             identity::Role::kReader};
  for (size_t i = 0; i < roles.size(); ++i) {
    come(i + 1, roles[i]);
    ask(i + 1, 5);
  }
  run(6, all());
  for (const auto& [line, message] : transport_.sent()) {
    EXPECT_TRUE(std::holds_alternative<chain::Refused>(message)) << line;
  }
  EXPECT_THAT(transport_.closed(), ElementsAre(1, 2, 3));
}

TEST_F(LendingTest, WhoAsksForTooManyAtOnceIsClosed) {
  come(1, std::nullopt);
  for (size_t i = 0; i < PartLender::kMostWaiting + 3; ++i) ask(1, 1000);
  // A day for each piece.
  PartLenderOptions slow = all();
  slow.bits_per_second = 0.1;
  run(1, slow);
  EXPECT_THAT(transport_.closed(), ::testing::Contains(1));
  EXPECT_LE(transport_.sent().size(), 1U);
}

}  // namespace
}  // namespace atl::serve
