// Frames over loopback gRPC, unpaced: what the transport itself costs.
#include <benchmark/benchmark.h>

#include <thread>

#include "atoll/net/grpc_transport.h"
#include "atoll/testing/recorder.h"

namespace atl::net {
namespace {

/// Counts frames instead of keeping them.
struct Counter {
  Transport::Sink sink() {
    return [this](const Event& event) {
      const std::lock_guard lock(mutex);
      num_frames += std::holds_alternative<Received>(event);
      num_changes += !std::holds_alternative<Received>(event);
      changed.notify_all();
    };
  }
  void wait(const std::function<bool()>& holds) {
    std::unique_lock lock(mutex);
    changed.wait(lock, holds);
  }
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_frames = 0;
  int64_t num_changes = 0;  // Opened, Writable.
};

void send_over_loopback(benchmark::State& state) {
  const SystemClock clock;
  Counter server_log;
  Counter client_log;
  const auto server = make_grpc_transport({}, clock, server_log.sink());
  const auto client = make_grpc_transport({}, clock, client_log.sink());
  const ConnectionId connection =
      client->connect(server->listen("127.0.0.1:0").value(), Plane::kBulk);
  client_log.wait([&] { return client_log.num_changes == 1; });
  const Bytes frame(static_cast<size_t>(state.range(0)));
  int64_t num_sent = 0;
  for (auto iteration : state) {
    while (true) {
      const int64_t seen = [&] {
        const std::lock_guard lock(client_log.mutex);
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
BENCHMARK(send_over_loopback)->Arg(256)->Arg(256 << 10)->UseRealTime();

void round_trip(benchmark::State& state) {
  const SystemClock clock;
  Counter client_log;
  std::unique_ptr<Transport> server;
  // An echo needs a thread of its own: sinks do not call back.
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Event> events;
  server = make_grpc_transport({}, clock, [&](Event event) {
    const std::lock_guard lock(mutex);
    events.push_back(std::move(event));
    changed.notify_all();
  });
  const auto client = make_grpc_transport({}, clock, client_log.sink());
  const ConnectionId connection =
      client->connect(server->listen("127.0.0.1:0").value(), Plane::kControl);
  const std::jthread echo([&](const std::stop_token& stop) {
    std::unique_lock lock(mutex);
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
