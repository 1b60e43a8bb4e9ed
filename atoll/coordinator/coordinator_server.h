#pragma once
// The coordinator as a process: connects the state machine to a transport and a clock.
// CoordinatorService is one run without a thread (the simulator drives it); CoordinatorServer runs
// several on the caller's thread until all are over. Nothing but the address, the thread and the
// transport is common to them: each has its own book, its own connections (run_router.h), its end.
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/coordinator/coordinator.h"
#include "atoll/coordinator/join_desk.h"
#include "atoll/net/transport.h"

namespace atl::swarm {

struct CoordinatorCallbacks {
  /// Returns once the record is durable. May throw InputError: then the run stands still, as after
  /// a kill -9, and the others go on. Empty: nothing is kept.
  std::function<void(const Record&)> persist;
  EventSink on_event;
  /// About twice a second, and when the run is over.
  std::function<void(const RunStatus&)> on_progress;
  /// Once, after which none of these is called: the run is over, or stands still.
  std::function<void()> on_end;
};

/// Decodes frames, does the coordinator's actions. Not thread-safe.
class CoordinatorService {
 public:
  /// `book` is what a journal has kept, or a new one. `authority`: the fingerprint of an encrypted
  /// run's, where the transport is of several.
  CoordinatorService(CoordinatorOptions options, Book book, CoordinatorCallbacks callbacks,
                     net::Transport& transport, Time now, std::string authority = {});

  void handle(net::Event event, Time now);
  void tick(Time now);
  void request_stop(Time now);
  void tell_revocations(Bytes signed_list, Time now);
  void end(const std::string& reason);
  /// Nobody waits any more for what comes of its calls.
  void hang_up();

  Time next_deadline() const { return coordinator_.next_deadline(); }
  const Coordinator& coordinator() const { return coordinator_; }
  /// Whether that connection was made here, to find out whether a member can be called.
  bool has_called(net::ConnectionId connection) const { return calls_.contains(connection); }
  /// Set once the run is over.
  const std::optional<Result<void>>& result() const { return result_; }

 private:
  void act(Coordinator::Actions actions);
  /// Of a connection that this service made.
  bool answer_call(const net::Event& event, Time now);

  Coordinator coordinator_;
  CoordinatorCallbacks callbacks_;
  net::Transport& transport_;
  const std::string authority_;
  /// That it made; those that were answered are only to end.
  std::map<net::ConnectionId, std::optional<Coordinator::Call>> calls_;
  std::optional<Result<void>> result_;
};

/// Who becomes a member of an encrypted run and who is none any more, on the thread in run(). Empty
/// of a run in the clear.
struct AuthorityCallbacks {
  std::string fingerprint;
  /// The reply to who asks for a certificate.
  std::function<std::string(std::string_view request, const identity::Caller&)> answer;
  /// A few times a second: the authority's signed list of who is revoked, where it is newer than
  /// the last one.
  std::function<std::optional<Bytes>()> newer_revocations;
};

/// What a coordinator needs for one of its runs.
struct ServedRun {
  std::string name;  // That islands ask for; may be empty for the only one.
  CoordinatorOptions options;
  Book book;  // What a journal has kept, or a new one.
  CoordinatorCallbacks callbacks;
  AuthorityCallbacks authority;
};

class CoordinatorServer {
 public:
  /// `clock` must outlive it. The callbacks run on the thread in run(), `on_log` for what belongs
  /// to no run. Throws UsageError when the runs cannot be told apart (run_router.h), and what
  /// `persist` throws.
  CoordinatorServer(std::vector<ServedRun> runs, const net::TransportFactory& make_transport,
                    const Clock& clock, std::function<void(const std::string&)> on_log = {});
  ~CoordinatorServer();

  /// Returns the bound address (port 0: the system chooses). Fails when the port is in use.
  [[nodiscard]] Result<std::string> listen(const std::string& address);
  /// Serves until all runs are over. Fails when one did not end well: with its reason where it was
  /// the only one, else naming each that failed. `num_stops` is polled: 1 asks all islands to stop
  /// after the next commit, 2 ends all runs now.
  [[nodiscard]] Result<void> run(const std::function<int()>& num_stops);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::swarm
