#pragma once
// An island's place in a run: joins it, averages with the other members on a thread of its own, and
// fails at once, with the coordinator's reason, when the run ends. A thin shell around engine.h,
// which holds the protocol.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/base/result.h"
#include "atoll/collective/averager.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/ending.h"
#include "atoll/swarm/messages.h"

namespace atl::collective {

struct SessionOptions {
  std::string coordinator;             // HOST:PORT
  std::string run_name;                // To join, among the coordinator's; empty: it has but one.
  std::string listen = "127.0.0.1:0";  // Where other islands reach this one.
  std::string advertise;               // HOST:PORT for them instead; empty: what `listen` became.
  std::string name;                    // Unique within the run: letters, digits, '-', '_', '.'.
  std::map<std::string, std::string> settings;  // What the user asked for; must be the run's.
  Duration connect_patience = std::chrono::seconds(60);  // For a coordinator that is absent.
  Duration silence_timeout = std::chrono::seconds(30);
  Duration return_patience = std::chrono::minutes(10);  // For one that is lost later.
  size_t result_log_bytes = size_t{256} << 20;  // Of past rounds, for members that are behind.
  std::string version;                          // Empty: this program's.
  /// Of a core's time, at most, for the exchange thread beside the training threads, in (0, 1]:
  /// after each unit of work it rests in proportion. While wait() waits it does not rest.
  double work_share = 1.0;
  /// On a thread of the session: the coordinator was lost, or is back (collective/events.h).
  EventSink on_event = [](const Event&) {};
  /// On a thread of the session: the signed list of who is no member any more (swarm's View).
  std::function<void(const Bytes&)> on_revocations = [](const Bytes&) {};
  /// On a thread of the session: two others were told to meet here, in that circuit.
  std::function<void(const net::CircuitId&)> on_circuit = [](const net::CircuitId&) {};
  /// True once the user wants no more: ends the wait for the coordinator and for other islands.
  std::function<bool()> cancelled = [] { return false; };
};

/// What an island can say once its data and model are at hand.
struct ReadyReport {
  std::map<std::string, std::string> facts;    // Must be equal on all islands: field -> value.
  std::map<int64_t, std::string> checkpoints;  // Step -> digest; step 0 is the initial state.
  swarm::Former former{};  // What this island was, if all that it had can be made again here.
  /// The last that it has then: lent as soon as it is that member, since others may have lost them.
  std::vector<std::shared_ptr<const CommittedRound>> newest_rounds{};
  /// After which a coordinator or an exchange without a word counts as lost, from here on.
  Duration silence_timeout = std::chrono::seconds(30);
};

struct StartInfo {
  int32_t number = 0;      // This member's.
  int num_members = 0;     // That the run began with.
  int64_t start_step = 0;  // The newest checkpoint that all held then.
  int64_t step = 0;        // Where the run stands.
  uint64_t term = 0;       // Of the coordinator.
  bool joins = false;      // It is under way: the state is to be fetched, fragment by fragment.
  bool returns = false;    // It waits for this island, which is the member that it was.
  std::vector<std::string> members;  // Names, by number.
};

/// A fragment's state as the others hold it.
struct FetchedState {
  int64_t round = 0;  // After which.
  int64_t step = 0;
  Digest digest{};  // By which the run knows it.
  Bytes bytes;
};

struct ProgressReport {
  int64_t step = 0;
  double loss = 0;
  double tokens_per_s = 0;
  int64_t num_trained = 0;  // Units.
};

/// How long to rest after a unit of work that took `busy`, so that work is `share` of the time; at
/// most 5 s, for the others wait for what is done here.
Duration rest_after(Duration busy, double share);

/// Thread rule: one thread calls it, but for request_stop() and report(), which any may call.
/// Values and prepare() of a contribution are used on the session's two threads, by one at a time,
/// and not any more when wait() has returned or the session is destroyed: both wait for a prepare()
/// that runs.
class Session final : public Averager {
 public:
  /// Joins the run of a coordinator: tries again with growing pauses while it cannot be reached,
  /// for `connect_patience`. Fails when it refuses this island (naming the field), when the
  /// patience is over, or when it cannot listen. `clock` must outlive the session.
  static Result<std::unique_ptr<Session>> connect(SessionOptions options,
                                                  const net::TransportFactory& make_transport,
                                                  const Clock& clock);
  /// Without leave() before it, the others go on as after a loss.
  ~Session() override;

  /// The run's settings, as the coordinator has them.
  const std::string& config_text() const;
  /// The run's name.
  const std::string& run() const;

  /// Waits until all islands are ready. Fails when this one does not fit (naming the fact), or the
  /// run ends. Call once.
  [[nodiscard]] Result<StartInfo> ready(ReadyReport report);

  /// After a start that `joins`: the newest committed state of a fragment, `size` bytes of it, from
  /// the others. Fails when none of them can give it. The caller checks the digest.
  [[nodiscard]] Result<FetchedState> fetch_state(int32_t fragment, size_t size);
  /// The next unit of data to train on (swarm/leases.h). Waits when the coordinator has granted no
  /// more.
  [[nodiscard]] Result<int64_t> next_unit();
  /// After a failure: of what kind it was.
  swarm::Ending ending() const;

  int num_members() const override;
  void begin(Contribution contribution) override;
  [[nodiscard]] Result<Commit> wait(int64_t round) override;
  std::optional<Commit> take_missed() override;
  std::optional<DueRound> take_due() override;
  bool is_decided(int64_t round) const override;
  std::optional<int64_t> take_position() override;
  void serve_state(StateProvider provider) override;
  ExchangeStats stats() const override;

  /// For the live view; travels with the next heartbeat.
  void report(const ProgressReport& progress);
  /// Asks all members to stop after the next commit.
  void request_stop();
  /// This island is done; the others go on without it. Fails when the run had ended before.
  [[nodiscard]] Result<void> leave();

 private:
  class Impl;
  explicit Session(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace atl::collective
