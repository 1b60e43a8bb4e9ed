#pragma once
// The coordinator as a process: connects the state machine to a transport and a clock.
// CoordinatorService is the part without a thread (the simulator drives it); CoordinatorServer runs
// it on the caller's thread until the run is over.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/coordinator.h"

namespace atl::swarm {

struct CoordinatorCallbacks {
  /// Returns once the record is durable; may throw, which ends the coordinator. Empty: nothing is
  /// kept.
  std::function<void(const Record&)> persist;
  std::function<void(const std::string& line)> on_log;
  /// About twice a second, and when the run is over.
  std::function<void(const RunStatus&)> on_progress;
};

/// Decodes frames, does the coordinator's actions. Not thread-safe.
class CoordinatorService {
 public:
  /// `book` is what a journal has kept, or a new one.
  CoordinatorService(CoordinatorOptions options, Book book, CoordinatorCallbacks callbacks,
                     net::Transport& transport, Time now);

  void handle(net::Event event, Time now);
  void tick(Time now);
  void request_stop(Time now);
  void end(const std::string& reason);

  Time next_deadline() const { return coordinator_.next_deadline(); }
  const Coordinator& coordinator() const { return coordinator_; }
  /// Set once the run is over.
  const std::optional<Result<void>>& result() const { return result_; }
  /// All connections are gone: what was said last was delivered.
  bool drained() const { return num_open_ == 0; }

 private:
  void act(Coordinator::Actions actions);

  Coordinator coordinator_;
  CoordinatorCallbacks callbacks_;
  net::Transport& transport_;
  std::optional<Result<void>> result_;
  int64_t num_open_ = 0;
};

class CoordinatorServer {
 public:
  /// `clock` must outlive it. The callbacks run on the thread in run().
  CoordinatorServer(CoordinatorOptions options, Book book, CoordinatorCallbacks callbacks,
                    const net::TransportFactory& make_transport, const Clock& clock);
  ~CoordinatorServer();

  /// Returns the bound address (port 0: the system chooses). Fails when the port is in use.
  [[nodiscard]] Result<std::string> listen(const std::string& address);
  /// Serves until the run is over; fails with the reason when it did not end well. `num_stops` is
  /// polled: 1 asks the islands to stop after the next commit, 2 ends the run now.
  [[nodiscard]] Result<void> run(const std::function<int()>& num_stops);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::swarm
