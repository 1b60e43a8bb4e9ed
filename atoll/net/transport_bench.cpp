// Frames over loopback, unpaced: what the transport itself costs.
#include <benchmark/benchmark.h>

#include <thread>

#include "atoll/base/mutex.h"
#include "atoll/identity/authority.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

/// Counts frames instead of keeping them.
struct Counter {
  Transport::Sink sink() {
    return [this](const Event& event) {
      const MutexLock lock(mutex);
      num_frames += std::holds_alternative<Received>(event);
      num_changes += !std::holds_alternative<Received>(event);
      changed.notify_all();
    };
  }
  void wait(const std::function<bool()>& holds) {
    MutexLock lock(mutex);
    changed.wait(lock, holds);
  }
  Mutex mutex;
  Condition changed;
  int64_t num_frames = 0;
  int64_t num_changes = 0;  // Opened, Writable.
};

/// Null: in the clear.
std::shared_ptr<Trust> trust_of(bool is_encrypted, identity::Role role) {
  if (!is_encrypted) return nullptr;
  static const auto now =
      std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  static const auto authority = identity::Authority::create("bench", now);
  const auto key = identity::Key::generate();
  const auto certificate = authority.sign(key.request(), {authority.fingerprint(), role, "one"},
                                          std::chrono::hours(1), now);
  return std::make_shared<Trust>(
      identity::Credentials{authority.certificate_pem(), certificate.value(), key.pem()});
}

void send_over_loopback(benchmark::State& state) {
  const SystemClock clock;
  Counter server_log;
  Counter client_log;
  const bool is_encrypted = state.range(1) != 0;
  const auto server = make_tcp_transport(
      {.trust = trust_of(is_encrypted, identity::Role::kCoordinator)}, clock, server_log.sink());
  const auto client = make_tcp_transport({.trust = trust_of(is_encrypted, identity::Role::kIsland)},
                                         clock, client_log.sink());
  const ConnectionId connection =
      client->connect(server->listen("127.0.0.1:0").value(), Plane::kBulk);
  client_log.wait([&] { return client_log.num_changes == 1; });
  const Bytes frame(static_cast<size_t>(state.range(0)));
  int64_t num_sent = 0;
  for (auto iteration : state) {
    while (true) {
      const int64_t seen = [&] {
        const MutexLock lock(client_log.mutex);
        return client_log.num_changes;
      }();
      if (client->send(connection, frame) == Sent::kAccepted) break;
      client_log.wait([&] { return client_log.num_changes > seen; });
    }
    ++num_sent;
  }
  server_log.wait([&] { return server_log.num_frames == num_sent; });
  state.SetBytesProcessed(num_sent * state.range(0));
}
BENCHMARK(send_over_loopback)
    ->ArgNames({"bytes", "tls"})
    ->ArgsProduct({{256, 256 << 10}, {0, 1}})
    ->UseRealTime();

void round_trip(benchmark::State& state) {
  const SystemClock clock;
  Counter client_log;
  std::unique_ptr<Transport> server;
  // An echo needs a thread of its own: sinks do not call back.
  Mutex mutex;
  Condition changed;
  std::vector<Event> events;
  server = make_tcp_transport({}, clock, [&](Event event) {
    const MutexLock lock(mutex);
    events.push_back(std::move(event));
    changed.notify_all();
  });
  const auto client = make_tcp_transport({}, clock, client_log.sink());
  const ConnectionId connection =
      client->connect(server->listen("127.0.0.1:0").value(), Plane::kControl);
  const std::jthread echo([&](const std::stop_token& stop) {
    MutexLock lock(mutex);
    while (!stop.stop_requested()) {
      changed.wait_for(lock, std::chrono::milliseconds(10), [&] { return !events.empty(); });
      for (Event& event : std::exchange(events, {})) {
        if (auto* received = std::get_if<Received>(&event)) {
          static_cast<void>(server->send(received->connection, std::move(received->frame)));
        }
      }
    }
  });
  int64_t num_sent = 0;
  for (auto iteration : state) {
    static_cast<void>(client->send(connection, Bytes(100)));
    ++num_sent;
    client_log.wait([&] { return client_log.num_frames == num_sent; });
  }
}
BENCHMARK(round_trip)->UseRealTime();

}  // namespace
}  // namespace atl::net
