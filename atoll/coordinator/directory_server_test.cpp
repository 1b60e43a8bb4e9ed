// A coordinator, servers and a gateway on threads of their own, over a network within this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "atoll/chain/directory_post.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/coordinator/event_inbox.h"
#include "atoll/testing/memory_transport.h"

namespace atl::swarm {
namespace {

using chain::Lease;
using chain::LeaseState;
using std::chrono::milliseconds;
using std::chrono::seconds;

/// A coordinator whose run nobody trains in.
class Coordinating {
 public:
  Coordinating(net::MemoryNetwork& network, const Clock& clock)
      : server_(
            runs(),
            [&](net::Transport::Sink sink) {
              auto transport = network.make_transport(std::move(sink));
              transport_ = transport.get();
              return transport;
            },
            clock) {
    EXPECT_TRUE(server_.listen("coordinator:1"));
    thread_ = std::jthread([this] { std::ignore = server_.run([this] { return stops_.load(); }); });
  }
  ~Coordinating() { stops_ = 2; }

  net::Transport& transport() { return *transport_; }
  RunStatus status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  std::vector<std::string> kinds() {
    const std::lock_guard lock(mutex_);
    return kinds_;
  }

 private:
  std::vector<ServedRun> runs() {
    std::vector<ServedRun> runs(1);
    runs[0].options = {.run = "r1", .replicas = 2};
    runs[0].callbacks.on_progress = [this](const RunStatus& status) {
      const std::lock_guard lock(mutex_);
      status_ = status;
    };
    runs[0].callbacks.on_event = [this](const Event& event) {
      const std::lock_guard lock(mutex_);
      kinds_.push_back(event.kind);
    };
    return runs;
  }

  std::mutex mutex_;
  RunStatus status_;
  std::vector<std::string> kinds_;
  std::atomic<int> stops_{0};
  net::Transport* transport_ = nullptr;
  CoordinatorServer server_;
  std::jthread thread_;
};

/// A server, or a gateway: its post, and what it does with places.
class Member {
 public:
  Member(net::MemoryNetwork& network, const Clock& clock, const std::string& name, bool watches)
      : clock_(clock),
        transport_(
            network.make_transport([this](net::Event event) { inbox_.push(std::move(event)); })),
        post_({.coordinator = "coordinator:1",
               .watches = watches ? std::optional<std::string>("") : std::nullopt},
              *transport_) {
    if (watches) return;
    lease_ = {.name = name,
              .address = name + ":7",
              .model = "m",
              .digest = "d",
              .num_layers = 8,
              .max_layers = 4,
              .layers_per_s = 5};
    post_.set_lease(*lease_, clock_.now());
  }

  chain::DirectoryPost& post() { return post_; }
  net::Transport& transport() { return *transport_; }

  void go_on() {
    while (const auto event = inbox_.pop({})) post_.handle(*event, clock_.now());
    if (clock_.now() >= post_.next_deadline()) post_.tick(clock_.now());
    const auto place = post_.take_place();
    if (!place || !lease_) return;
    lease_->state = LeaseState::kServing;
    lease_->layers = *place;
    post_.set_lease(*lease_, clock_.now());
  }

 private:
  const Clock& clock_;
  EventInbox inbox_{size_t{1} << 20};
  std::unique_ptr<net::Transport> transport_;
  std::optional<Lease> lease_;
  chain::DirectoryPost post_;
};

struct DirectoryServerTest : testing::Test {
  bool wait_until(const std::function<bool()>& is_so) {
    const Time deadline = clock.now() + seconds(30);
    while (clock.now() < deadline) {
      for (const auto& member : members) member->go_on();
      if (is_so()) return true;
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }
  Member& join(const std::string& name, bool watches = false) {
    return *members.emplace_back(std::make_unique<Member>(network, clock, name, watches));
  }
  size_t num_serving(Member& gateway) {
    return static_cast<size_t>(
        std::ranges::count(gateway.post().servers(), LeaseState::kServing, &Lease::state));
  }

  SystemClock clock;
  net::MemoryNetwork network;
  std::optional<Coordinating> coordinator;
  std::vector<std::unique_ptr<Member>> members;
};

TEST_F(DirectoryServerTest, ServersArePlacedGatewaysHearAndBothOutliveTheCoordinator) {
  Member& gateway = join("g", true);
  join("a");
  join("b");
  EXPECT_FALSE(gateway.post().is_connected());
  coordinator.emplace(network, clock);  // They have called before it was there.
  ASSERT_TRUE(wait_until([&] { return num_serving(gateway) == 2; }));
  EXPECT_EQ(gateway.post().servers()[0].layers, (chain::Span{0, 4}));
  EXPECT_EQ(gateway.post().servers()[1].layers, (chain::Span{4, 8}));
  ASSERT_TRUE(wait_until([&] {
    const std::vector<ServerStatus> servers = coordinator->status().servers;
    return servers.size() == 2 && servers[1].first == 4;
  }));
  EXPECT_THAT(coordinator->kinds(), testing::IsSupersetOf({"server_came", "server_placed"}));

  // kill -9: what is known holds, and the next one learns it again.
  network.crash(coordinator->transport());
  coordinator.reset();
  ASSERT_TRUE(wait_until([&] { return !gateway.post().is_connected(); }));
  EXPECT_EQ(num_serving(gateway), 2U);
  coordinator.emplace(network, clock);
  const uint64_t version = gateway.post().servers_version();
  ASSERT_TRUE(wait_until([&] { return gateway.post().servers_version() > version; }));
  EXPECT_EQ(num_serving(gateway), 2U);

  const Time killed = clock.now();
  network.crash(members.back()->transport());
  ASSERT_TRUE(wait_until([&] { return num_serving(gateway) == 1; }));
  EXPECT_LT(clock.now() - killed, seconds(4));
}

}  // namespace
}  // namespace atl::swarm
