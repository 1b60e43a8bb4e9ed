#pragma once
// The coordinator's decisions: who takes part, when a round is exchanged, whether it is committed,
// when the run is over. A pure state machine: events and the time go in, actions come out; it owns
// no socket, clock or thread. coordinator_server.h acts on what it decides.
//
// A run gathers `replicas` islands, starts them from the newest checkpoint that all hold, and ends
// when all have left. When one is lost the others go on: a round that it was part of takes another
// attempt. With less than `min_replicas` the run ends for everybody.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/swarm/messages.h"
#include "atoll/swarm/status.h"
#include "atoll/swarm/tally.h"

namespace atl::swarm {

/// The version of this program, as Hello carries it.
std::string program_version();

struct CoordinatorOptions {
  std::string run;                              // Names the run in every message.
  uint64_t term = 1;                            // The coordinator's incarnation.
  std::string version = program_version();      // Islands must run the same.
  std::string config;                           // Handed to every island.
  std::map<std::string, std::string> settings;  // The same, by name, to compare with Hello's.
  int64_t min_replicas = 2;                     // The least that go on.
  int64_t replicas = 0;                         // That begin; 0: min_replicas.
  int64_t steps = 0;                            // Of the run, for its status; 0: not known.
  Duration silence_timeout = std::chrono::seconds(30);
  Duration alive_interval = std::chrono::seconds(1);
  Duration hello_timeout = std::chrono::seconds(10);  // A connection that says nothing is closed.
};

/// Not thread-safe. Every method may return actions; do them in order.
class Coordinator {
 public:
  using Connection = uint64_t;

  struct Send {
    Connection to = 0;
    Message message;
  };
  /// What was sent before is delivered, then the connection ends.
  struct Close {
    Connection connection = 0;
  };
  /// Something that a person watching wants to know.
  struct Log {
    std::string line;
  };
  /// The run is over; the last action. Fails with the reason that RunEnded carried.
  struct Finished {
    Result<void> result;
  };
  using Action = std::variant<Send, Close, Log, Finished>;
  using Actions = std::vector<Action>;

  Coordinator(CoordinatorOptions options, Time now);

  Actions opened(Connection connection, Time now);
  Actions received(Connection connection, const Message& message, Time now);
  /// A frame that is no message: `reason` says why.
  Actions garbled(Connection connection, const std::string& reason, Time now);
  Actions lost(Connection connection, const std::string& reason, Time now);
  /// Call at next_deadline() or later.
  Actions tick(Time now);
  /// The operator's Ctrl-C: the next commit tells all to stop; before the start the run ends.
  Actions request_stop(Time now);
  /// Ends the run for everybody now.
  Actions end(const std::string& reason);

  Time next_deadline() const;
  bool finished() const { return finished_; }
  /// What is known now. Times in it end at `now`.
  RunStatus status(Time now) const;
  int64_t last_round() const { return last_round_; }

 private:
  struct Island {  // An admitted one.
    Hello hello;
    std::optional<Ready> ready;
    bool left = false;
    Time heard{};
    Heartbeat progress;
    std::string reason;  // Why it was lost.
  };
  struct Round {
    std::map<int32_t, Begin> begun;      // By number.
    int32_t attempt = -1;                // The one that is open.
    std::vector<int32_t> members;        // Of that attempt.
    std::map<int32_t, Digest> prepared;  // In it.
  };

  Header header(int64_t round = -1, int32_t attempt = -1) const;
  void send(Connection to, Message message);
  void log(std::string line, bool event = true);  // An event of the membership.
  void broadcast(const Message& message);
  void refuse(Connection connection, const std::string& reason);
  void fail(const std::string& reason);
  /// An island said what it must not.
  void violate(Connection connection, const std::string& what);
  void finish(Result<void> result);
  Actions take();

  void on(Connection from, Island& island, const Ready& ready);
  void on(Connection from, Island& island, const Begin& begin);
  void on(Connection from, Island& island, const Prepared& prepared);
  void on(Connection from, Island& island, const Heartbeat& heartbeat);
  void on(Connection from, Island& island, const Trouble& trouble);
  void on(Connection from, Island& island, const StopRequest& request);
  void on(Connection from, Island& island, const Leave& leave);
  template <typename Other>
  void on(Connection from, Island& island, const Other& other);
  void admit(Connection connection, const Hello& hello, Time now);
  std::string objection_to(const Hello& hello) const;
  std::string objection_to(const Ready& ready) const;
  IslandStatus status_of(const Island& island, IslandState state, Time now) const;
  void start_if_complete();
  int64_t num_replicas() const;
  int32_t number_of(const Island& island) const;
  void lose(int32_t member, const std::string& what);
  void finish_if_all_left();
  /// Opens or commits a round that waits for nobody who is here any more.
  void advance(int64_t number);
  void open(int64_t number, Round& round);
  void commit(int64_t number, const Round& round);

  CoordinatorOptions options_;
  std::map<Connection, Time> strangers_;  // Connected, not admitted; when they came.
  std::map<Connection, Island> islands_;
  std::map<int64_t, Round> rounds_;  // Unresolved ones.
  std::vector<std::string> names_;   // By number, once started.
  std::set<int32_t> here_;           // Numbers of those who were not lost.
  bool started_ = false;
  bool stop_requested_ = false;
  bool finished_ = false;
  int64_t last_round_ = -1;
  int64_t last_step_ = 0;
  Time last_moved_;  // When an island last said that it had moved something.
  Time next_alive_;
  // For the status only.
  Time began_;
  Time now_;  // Of the last event that was handed in.
  Tally tally_;
  std::map<int32_t, Island> away_;      // Lost ones, by number.
  std::deque<MembershipEvent> events_;  // The last ones.
  Actions actions_;
};

}  // namespace atl::swarm
