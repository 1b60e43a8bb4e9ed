// Who is heard by the directory of an encrypted run, over TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "atoll/chain/directory_post.h"
#include "atoll/coordinator/coordinator_server.h"
#include "atoll/coordinator/event_inbox.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/issue.h"
#include "atoll/net/tcp_transport.h"

namespace atl::swarm {
namespace {

using identity::Role;
using testing::HasSubstr;

std::shared_ptr<net::Trust> trust_of(const identity::Authority& authority, Role role,
                                     const std::string& name) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const auto key = identity::Key::generate();
  const auto certificate = authority.sign(key.request(), {authority.fingerprint(), role, name},
                                          std::chrono::hours(1), now);
  return std::make_shared<net::Trust>(
      identity::Credentials{authority.certificate_pem(), certificate.value(), key.pem()});
}

/// A post with a certificate, and the lease of the server 'a'.
struct Member {
  Member(std::shared_ptr<net::Trust> trust, const std::string& coordinator, const Clock& time,
         bool watches)
      : clock(time),
        transport(
            net::make_tcp_transport({.trust = std::move(trust)}, clock,
                                    [this](net::Event event) { inbox.push(std::move(event)); })),
        post({.coordinator = coordinator,
              .watches = watches ? std::optional<std::string>("") : std::nullopt,
              .on_revocations = [this](const Bytes& list) { revocations = list; }},
             *transport) {
    if (watches) return;
    post.set_lease({.name = "a",
                    .address = "127.0.0.1:7",
                    .model = "m",
                    .digest = "d",
                    .num_layers = 8,
                    .max_layers = 8},
                   clock.now());
  }
  void go_on() {
    while (const auto event = inbox.pop(std::chrono::milliseconds(5))) {
      post.handle(*event, clock.now());
    }
    if (clock.now() >= post.next_deadline()) post.tick(clock.now());
  }

  const Clock& clock;
  EventInbox inbox{size_t{1} << 20};
  Bytes revocations;
  std::unique_ptr<net::Transport> transport;
  chain::DirectoryPost post;
};

struct DirectoryTlsTest : testing::Test {
  DirectoryTlsTest() {
    address = server.listen("127.0.0.1:0").value();
    thread = std::jthread([this] { std::ignore = server.run([this] { return stops.load(); }); });
  }
  ~DirectoryTlsTest() override { stops = 2; }

  std::vector<ServedRun> runs() {
    std::vector<ServedRun> runs(1);
    runs[0].options = {.run = "r1"};
    runs[0].authority.fingerprint = authority.fingerprint();
    runs[0].authority.newer_revocations = [this]() -> std::optional<Bytes> {
      if (!is_revoked.exchange(false)) return std::nullopt;
      return Bytes(7);
    };
    return runs;
  }
  std::unique_ptr<Member> member(Role role, const std::string& name, bool watches = false) {
    return std::make_unique<Member>(trust_of(authority, role, name), address, clock, watches);
  }
  bool wait_until(Member& member, const std::function<bool()>& is_so) const {
    const Time deadline = clock.now() + std::chrono::seconds(30);
    while (clock.now() < deadline) {
      member.go_on();
      if (is_so()) return true;
    }
    return false;
  }
  std::string refusal_of(Role role, const std::string& name) {
    const auto refused = member(role, name);
    EXPECT_TRUE(wait_until(*refused, [&] { return refused->post.refused().has_value(); }));
    return refused->post.refused().value_or("");
  }

  SystemClock clock;
  std::atomic<bool> is_revoked{false};
  identity::Authority authority = identity::Authority::create(
      "ours", std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
  CoordinatorServer server{runs(),
                           [this](net::Transport::Sink sink) {
                             return net::make_tcp_transport(
                                 {.trust = trust_of(authority, Role::kCoordinator, "coordinator")},
                                 clock, std::move(sink));
                           },
                           clock};
  std::string address;
  std::atomic<int> stops{0};
  std::jthread thread;
};

TEST_F(DirectoryTlsTest, ServersAndGatewaysAreLetInAndHear) {
  const auto a = member(Role::kServer, "a");
  std::optional<chain::Span> place;
  EXPECT_TRUE(wait_until(*a, [&] { return (place = a->post.take_place()).has_value(); }));
  EXPECT_EQ(place, (chain::Span{0, 8}));
  const auto gateway = member(Role::kGateway, "g", /*watches=*/true);
  EXPECT_TRUE(wait_until(*gateway, [&] { return !gateway->post.servers().empty(); }));
}

TEST_F(DirectoryTlsTest, ServersAndGatewaysHearWhoIsRevoked) {
  const auto a = member(Role::kServer, "a");
  const auto gateway = member(Role::kGateway, "g", /*watches=*/true);
  EXPECT_TRUE(wait_until(*a, [&] { return a->post.has_joined(); }));
  EXPECT_TRUE(wait_until(*gateway, [&] { return gateway->post.has_joined(); }));
  is_revoked = true;
  EXPECT_TRUE(wait_until(*a, [&] { return a->revocations == Bytes(7); }));
  EXPECT_TRUE(wait_until(*gateway, [&] { return gateway->revocations == Bytes(7); }));
  const auto late = member(Role::kGateway, "h", /*watches=*/true);
  EXPECT_TRUE(wait_until(*late, [&] { return late->revocations == Bytes(7); }));
}

TEST_F(DirectoryTlsTest, OthersAreToldWhyNot) {
  EXPECT_THAT(refusal_of(Role::kServer, "b"), HasSubstr("its certificate that it is 'b'"));
  EXPECT_THAT(refusal_of(Role::kGateway, "a"), HasSubstr("role gateway, not server"));
  EXPECT_THAT(refusal_of(Role::kIsland, "a"), HasSubstr("role island, not server or gateway"));
}

}  // namespace
}  // namespace atl::swarm
