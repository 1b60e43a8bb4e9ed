#include "atoll/cli/bench_network.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "atoll/base/error.h"
#include "atoll/base/mutex.h"
#include "atoll/identity/authority.h"
#include "atoll/identity/key.h"
#include "atoll/identity/wall_time.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/net/trust.h"

namespace atl::cli {
namespace {

constexpr size_t kFrameBytes = size_t{256} << 10;  // About what rounds send.
constexpr size_t kShortBytes = 100;
constexpr int kTrips = 200;
constexpr std::chrono::seconds kPatience{20};

/// Of a run of its own, which ends with this process; null: in the clear.
std::shared_ptr<net::Trust> trust_of(const identity::Authority* authority, identity::Role role) {
  if (authority == nullptr) return nullptr;
  const auto now = identity::wall_time_of(wall_time());
  const auto key = identity::Key::generate();
  const auto certificate = authority->sign(key.request(), {authority->fingerprint(), role, "bench"},
                                           std::chrono::hours(1), now);
  return std::make_shared<net::Trust>(
      identity::Credentials{authority->certificate_pem(), certificate.value(), key.pem()});
}

/// One end: counts what arrives instead of keeping it.
class End {
 public:
  End(std::shared_ptr<net::Trust> trust, const Clock& clock)
      : transport_(net::make_tcp_transport({.trust = std::move(trust)}, clock,
                                           [this](const net::Event& event) { take(event); })) {}

  net::Transport& transport() { return *transport_; }

  /// The connection that this end has.
  net::ConnectionId opened() {
    MutexLock lock(mutex_);
    wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return connection_ != 0; });
    return connection_;
  }

  void wait_for_frames(int64_t count) {
    MutexLock lock(mutex_);
    wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return num_frames_ >= count; });
  }

  /// Queues it, when there is room.
  void send(net::ConnectionId connection, const Bytes& frame) {
    while (true) {
      const int64_t seen = [&] {
        const MutexLock lock(mutex_);
        return num_changes_;
      }();
      if (transport_->send(connection, frame) == net::Sent::kAccepted) return;
      MutexLock lock(mutex_);
      wait(lock, [&]() ATOLL_REQUIRES(mutex_) { return num_changes_ > seen; });
    }
  }

 private:
  void take(const net::Event& event) {
    const MutexLock lock(mutex_);
    if (const auto* opened = std::get_if<net::Opened>(&event)) connection_ = opened->connection;
    if (const auto* lost = std::get_if<net::Lost>(&event)) lost_ = lost->reason;
    const bool is_frame = std::holds_alternative<net::Received>(event);
    num_frames_ += is_frame ? 1 : 0;
    num_changes_ += is_frame ? 0 : 1;
    changed_.notify_all();
  }

  void wait(MutexLock& lock, const auto& holds) ATOLL_REQUIRES(mutex_) {
    const auto is_over = [&]() ATOLL_REQUIRES(mutex_) { return !lost_.empty() || holds(); };
    if (!changed_.wait_for(lock, kPatience, is_over)) {
      throw InputError("loopback: this machine does not answer itself; is 127.0.0.1 filtered?");
    }
    if (!lost_.empty()) throw InputError("loopback: " + lost_);
  }

  Mutex mutex_;
  Condition changed_;
  net::ConnectionId connection_ ATOLL_GUARDED_BY(mutex_) = 0;
  int64_t num_frames_ ATOLL_GUARDED_BY(mutex_) = 0;
  int64_t num_changes_ ATOLL_GUARDED_BY(mutex_) = 0;  // Opened, Writable, Lost.
  std::string lost_ ATOLL_GUARDED_BY(mutex_);
  std::unique_ptr<net::Transport> transport_;  // Last: its threads call take().
};

/// Two ends and the connection between them.
class Loopback {
 public:
  Loopback(const identity::Authority* authority, const Clock& clock)
      : clock_(clock),
        server_(trust_of(authority, identity::Role::kCoordinator), clock),
        client_(trust_of(authority, identity::Role::kIsland), clock) {
    const auto address = server_.transport().listen("127.0.0.1:0");
    if (!address) throw InputError("loopback: " + address.error().message);
    client_.transport().connect(*address, net::Plane::kBulk);
    connection_ = client_.opened();
  }

  double bytes_per_s(Duration time) {
    const Bytes frame(kFrameBytes);
    const Time begin = clock_.now();
    int64_t count = 0;
    do {
      client_.send(connection_, frame);
      ++count;
    } while (clock_.now() - begin < time);
    server_.wait_for_frames(num_before_ + count);
    num_before_ += count;
    return static_cast<double>(count) * static_cast<double>(kFrameBytes) /
           seconds(clock_.now() - begin);
  }

  double round_trip_s() {
    const Bytes frame(kShortBytes);
    const net::ConnectionId back = server_.opened();
    Duration least = Duration::max();
    for (int64_t trip = 1; trip <= kTrips; ++trip) {
      const Time begin = clock_.now();
      client_.send(connection_, frame);
      server_.wait_for_frames(++num_before_);
      server_.send(back, frame);
      client_.wait_for_frames(trip);
      least = std::min(least, clock_.now() - begin);
    }
    return seconds(least);
  }

 private:
  const Clock& clock_;
  End server_;
  End client_;
  net::ConnectionId connection_ = 0;
  int64_t num_before_ = 0;  // Frames that the server has had.
};

}  // namespace

plan::LoopbackRates measure_loopback(Duration rate_time, const Clock& clock) {
  plan::LoopbackRates rates;
  Loopback plain(nullptr, clock);
  rates.round_trip_s = plain.round_trip_s();
  rates.plain_bytes_per_s = plain.bytes_per_s(rate_time);
  const auto now = identity::wall_time_of(wall_time());
  const auto authority = identity::Authority::create("bench", now);
  Loopback encrypted(&authority, clock);
  rates.encrypted_bytes_per_s = encrypted.bytes_per_s(rate_time);
  return rates;
}

}  // namespace atl::cli
