#pragma once
// The coordinator's decisions: who takes part, when a round is exchanged, whether it is committed,
// when the run is over. A pure state machine: events and the time go in, actions come out; it owns
// no socket, clock, file or thread. coordinator_server.h acts on what it decides. docs/protocol.md
// has the states and who may leave them.
//
// A run gathers `replicas` islands; those who hold the newest checkpoint start from it. From then
// on islands come and go: who is lost is left out of the rounds at once, who comes is told the
// newest committed state, gets it from the others, and is waited for again once it has it. What
// must not be forgotten is in the book (book.h), which changes by records that are durable before
// anybody hears of them.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/swarm/book.h"
#include "atoll/swarm/messages.h"
#include "atoll/swarm/outliers.h"
#include "atoll/swarm/rules.h"
#include "atoll/swarm/status.h"
#include "atoll/swarm/suspicion.h"
#include "atoll/swarm/tally.h"

namespace atl::swarm {

/// The version of this program, as Hello carries it.
std::string program_version();

struct CoordinatorOptions {
  std::string run;                              // Names the run in every message.
  std::string version = program_version();      // Islands must run the same.
  std::string config;                           // Handed to every island.
  std::map<std::string, std::string> settings;  // The same, by name, to compare with Hello's.
  int64_t replicas = 2;                         // Islands that the run begins with.
  int64_t min_replicas = 1;                     // With fewer, rounds wait, unless it stops.
  bool ends_together = false;                   // Then they wait when it stops, too.
  int64_t steps = 0;                            // Of the run, after which it is over; 0: not known.
  int64_t num_fragments = 1;                    // Rounds in a period of the method.
  bool takes_newcomers = true;                  // The method: others can be given its state.
  bool keeps_rounds = false;      // Islands keep what was committed after their checkpoints.
  int64_t most_lost = INT64_MAX;  // Steps from the newest checkpoint to the newest commit, at most.
  int64_t most_ahead = 64;        // Steps that a checkpoint may be beyond the newest commit.
  int64_t steps_ahead = 64;       // For which each island has rows at least.
  /// Pace `elastic`: units that all islands together train on between two rounds, which this
  /// coordinator calls. 0: `lockstep`, where a round is due at one step of all islands.
  int64_t round_units = 0;
  /// Whose contribution's norm is over so many times the usual one is left out; 0: nobody is.
  double outlier_factor = 10;
  uint64_t least_term = 1;  // A clock's seconds, so that terms rise though a journal was lost.
  Duration silence_timeout = std::chrono::seconds(30);  // At most, before silence is a loss.
  Duration alive_interval = std::chrono::milliseconds(200);
  Duration hello_timeout = std::chrono::seconds(10);    // A connection that says nothing is closed.
  Duration return_grace = std::chrono::seconds(5);      // For members, after this process began.
  Duration leave_patience = std::chrono::seconds(30);   // With others that lack what a leaver has.
  Duration removal_timeout = std::chrono::minutes(10);  // After which who is away is forgotten.
  Duration round_timeout = std::chrono::minutes(10);    // For who is here and does nothing.

  SuspicionOptions suspicion() const;
};

/// Not thread-safe. Every method may return actions; do them in order.
class Coordinator {
 public:
  using Connection = uint64_t;

  /// Must be durable before the next action is done.
  struct Persist {
    Record record;
  };
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
  using Action = std::variant<Persist, Send, Close, Log, Finished>;
  using Actions = std::vector<Action>;

  /// `book` is what a journal has kept, or a new one.
  Coordinator(CoordinatorOptions options, Book book, Time now);

  /// First: the term begins.
  Actions begin();
  Actions opened(Connection connection, Time now);
  Actions received(Connection connection, const Message& message, Time now);
  /// A frame that is no message: `reason` says why.
  Actions garbled(Connection connection, const std::string& reason, Time now);
  Actions lost(Connection connection, const std::string& reason, Time now);
  /// Call at next_deadline() or later.
  Actions tick(Time now);
  /// The operator's Ctrl-C: the next commit (elastic: the one that has all fragments) tells all to
  /// stop; before the start the run ends.
  Actions request_stop(Time now);
  /// Ends the run for everybody now.
  Actions end(const std::string& reason);

  Time next_deadline() const;
  bool finished() const { return finished_; }
  /// What is known now. Times in it end at `now`.
  RunStatus status(Time now) const;
  const Book& book() const { return book_; }

 private:
  // kBehind -> kActive -> kAway -> kBehind ..., and from each to kLeaving -> kLeft. kReturning:
  // this process has not heard of it yet; the rounds wait for a while. kLeaving: no round waits for
  // it, but it still has what others lack.
  enum class State : uint8_t { kBehind, kActive, kReturning, kAway, kLeaving, kLeft };
  struct Guest {  // Has said Hello, is no member yet.
    Hello hello;
    std::optional<Ready> ready;
    Time heard{};
  };
  struct Seat {  // A member's.
    State state = State::kBehind;
    std::optional<Connection> connection;
    bool is_new = true;       // Has contributed nothing yet.
    uint64_t caught_up = 0;   // Commits whose results it has.
    int64_t first_round = 0;  // From which on it is waited for, where active.
    int64_t num_trained = 0;
    Suspicion suspicion;
    Time away_since{};  // Or leaving.
    Time heard{};
    Heartbeat progress;
    Time trained{};           // When that last said that it had taken a step.
    double begin_delay = -1;  // Elastic: seconds from Due to its Begin, smoothed; < 0: not known.
    int64_t num_trained_at_call = 0;  // Elastic: when the last Due was said.
    int64_t rows_ahead = 0;  // Elastic: units that it trains on in kRowsAhead; 0: not known.
    Time measured{};         // When that was, and how many it had trained on then.
    int64_t num_trained_then = 0;
    std::string reason;    // Why it is away.
    int64_t left_out = 0;  // Rounds, for the status.
  };
  /// Among a round's members: its attempt cannot be completed any more.
  static constexpr int32_t kNobody = -1;
  struct Round {
    std::map<int32_t, Begin> begun;        // By number; of weight 0 who was left out.
    Time called{};                         // Elastic: when Due was said.
    Time waits{};                          // Since when: for those who have not begun it.
    int32_t attempt = -1;                  // The one that is open.
    std::vector<int32_t> members;          // Of that attempt.
    std::vector<Relay> relays;             // Of it too.
    std::map<int32_t, Prepared> prepared;  // In it.
    std::set<int32_t> left_out;            // Whose contributions cannot be used, or are outliers.

    bool has(int32_t member) const { return std::ranges::find(members, member) != members.end(); }
    /// Of what was contributed to the attempt, by what its members say.
    std::vector<Outliers::Contributed> norms() const;
  };
  struct Mistrust {           // In a link that broke.
    int64_t last_round = -1;  // That does without it,
    int64_t num_rounds = 0;   // the last of so many.
  };

  Header header(int64_t round = -1, int32_t attempt = -1) const;
  Book::Grants record(Record record);
  void send(Connection to, Message message);
  void send_to(const Seat& seat, Message message);
  void log(std::string line, bool event = true);  // An event of the membership.
  void broadcast(const Message& message);
  void refuse(Connection connection, const std::string& reason);
  void fail(const std::string& reason);
  /// Of a run that did not fail, in words.
  std::string outcome() const;
  void finish(Result<void> result);
  Actions take();

  void greet(Connection from, const Message& message, Time now);
  void on_guest(Connection from, const Message& message, Time now);
  void on_member(int32_t number, const Message& message, Time now);
  void admit(Connection connection, const Hello& hello, Time now);
  void resume(Connection connection, const Resume& resume, Time now);
  std::string objection_to(const Hello& hello) const;
  std::string objection_to(const Resume& resume) const;
  std::string objection_to(const Ready& ready) const;

  void gather(Time now);
  bool is_guest(const std::string& name) const;
  bool is_ready(const std::string& name) const;
  /// The checkpoint that the run begins with, and who holds it: those begin it.
  struct Beginning {
    int64_t step = 0;
    std::map<std::string, Connection> islands;  // By name.
  };
  std::optional<Beginning> find_beginning() const;
  int64_t oldest_beginning() const;
  /// Each guest's, for a person.
  std::string newest_checkpoints() const;
  void start_run(Time now);
  void seat_guests(Time now);
  // Members whose processes came to their end, and that hold on disk all they had
  // (coordinator_comeback.cpp).
  /// The index of the first commit whose result the guest lacks, if it can be what it was.
  std::optional<uint64_t> first_lacking(const Guest& guest) const;
  /// Seats those that can be what they were. Whether there is one.
  bool take_back_guests();
  void take_back(Connection connection, uint64_t first_lacking);
  /// Whether somebody who is here, or one of those, has the commit's result.
  bool is_held(const Committed& committed, const std::map<Connection, uint64_t>& able) const;
  void refuse_guests(int64_t step);
  void begin_first_period_anew();
  int32_t seat(Connection connection, Time now);
  Start start_of(int32_t number, bool joins) const;
  std::vector<Peer> peers() const;
  void announce_view();

  void on(int32_t number, const Begin& begin);
  void on(int32_t number, const Prepared& prepared);
  void on(int32_t number, const Unusable& unusable);
  void on(int32_t number, const CaughtUp& caught_up);
  void on(int32_t number, const Heartbeat& heartbeat);
  void on(int32_t number, const LinkState& link);
  void on(int32_t number, const Trouble& trouble);
  void on(int32_t number, const StopRequest& request);
  void on(int32_t number, const Leave& leave);
  template <typename Other>
  void on(int32_t number, const Other& other);

  /// Is left out of rounds from here on; it may come back.
  void put_away(int32_t number, const std::string& why, Time now);
  void look_for_silence(Time now);
  /// Removes who is heard, has not begun the open round, and does not train.
  void look_for_idleness();
  /// For good.
  void remove(int32_t number, const std::string& why);
  void vacate(int32_t number, const std::string& why);
  void forget_rounds_of(int32_t number);
  void violate(int32_t number, const std::string& what);
  /// Reinstates who is behind no more.
  void look_whether_level(int32_t number);
  void reinstate(int32_t number);
  void hurry_newcomers();
  void note_membership();
  void say_goodbye();
  /// Its last step is committed.
  bool is_at_end() const { return options_.steps > 0 && book_.last_step() >= options_.steps; }
  bool is_complete() const;
  void finish_if_all_left(bool has_just_left);
  IslandStatus status_of(int32_t number, const Seat& seat, Time now) const;
  void count(const Committed& committed);
  const std::string& name(int32_t number) const;
  void note_stop();
  /// Whether all end with that round.
  bool stops_with(const Committed& committed) const;
  /// Elastic: how fast it trains, by its Heartbeats.
  void measure_speed(Seat& seat) const;
  /// Why no round goes on; empty: they do.
  std::string why_waits() const;
  bool is_first_period() const;
  /// With fewer, rounds wait.
  int64_t least_replicas() const;
  /// The same of the next round, which may be the one that a request to stop waits for.
  int64_t least_for_round() const;
  bool is_live(const Seat& seat) const;
  bool any_is(State state) const;
  int64_t num_live() const;

  std::vector<int32_t> expected(int64_t round) const;
  void advance_all();
  void advance(int64_t number);
  void open(int64_t number, Round& round, Ways ways);
  /// Says what becomes of pairs that cannot reach each other, where it is new.
  void note_ways(int64_t number, const Round& round);
  /// Pairs that do not send each other anything directly in that round.
  Pairs no_links_in(int64_t round) const;
  void mistrust(const std::pair<int32_t, int32_t>& pair);
  void trust_links(const Round& round);

  /// Its members abstain from the attempts that follow; `why` is for a person.
  void leave_out(Round& round, int64_t round_number, int32_t number, const std::string& why);
  /// Before a commit. False: nobody is to be left out.
  bool leave_outliers_out(int64_t round_number, Round& round);
  /// After one.
  void note_norms(const Round& round, int32_t fragment);

  // Elastic pace (coordinator_pace.cpp).
  bool is_elastic() const { return options_.round_units > 0; }
  /// Units between two of a member's Heartbeats.
  int64_t report_every() const;
  /// Calls the next round if the islands have trained on enough.
  void call_round();
  /// The rounds that come are the run's last ones.
  bool is_ending() const;
  void call();
  /// What the next one is: the same in every term.
  Due next_due() const;
  void say_due(const Seat& seat);
  /// What is wrong with a Begin; empty if nothing.
  std::string objection_to(const Begin& begin) const;
  void note_begin(int32_t number, const Begin& begin);
  /// When a round goes on without those who have not begun it.
  Time grace_ends(const Round& round, const std::vector<int32_t>& awaited) const;
  /// Where the run stands once that round is committed.
  int64_t step_after(const Round& round) const;
  void commit(int64_t number);
  Commit message_of(const Committed& committed) const;
  void grant_rows();

  CoordinatorOptions options_;
  Book book_;
  std::map<Connection, Time> strangers_;  // Connected, have said nothing; when they came.
  std::map<Connection, Guest> guests_;
  std::map<Connection, int32_t> numbers_;  // Of members that are connected.
  std::map<int32_t, Seat> seats_;
  std::map<int64_t, Round> rounds_;  // Unresolved ones.
  Outliers outliers_;                // By the norms that were committed.
  std::optional<Due> due_;           // Elastic: the one that was called.
  Pairs no_links_;                   // Pairs that cannot reach each other.
  std::map<std::pair<int32_t, int32_t>, Mistrust> mistrusted_;  // By pair.
  std::map<std::string, std::string> facts_;                    // Equal on all islands.
  uint64_t view_ = 0;
  int64_t highest_begun_ = -1;
  int64_t num_begun_with_ = 0;        // Islands; 0: not known.
  std::optional<Time> gather_until_;  // When those who are ready begin without the others.
  std::set<std::string> awaited_;     // Who was told to join again, and will.
  std::string gather_notice_;         // Why they do not; said once.
  Time returning_until_;
  bool waits_for_more_ = false;  // Less than min_replicas are here, and it was said.
  // In this process. After those who left an earlier one, the run may be begun again.
  bool has_anyone_left_ = false;
  bool stop_requested_ = false;
  int64_t stop_round_ = 0;   // Elastic: from which on commits say so.
  uint64_t stop_index_ = 0;  // Lockstep: the same, by the commits' index.
  bool finished_ = false;
  Time now_;         // Of the event that is being handled.
  Time last_moved_;  // When an island last said that it had moved something.
  Time next_alive_;
  // For the status and the log only.
  Time began_;
  std::map<std::pair<int32_t, int32_t>, bool> is_relayed_;  // Of no_links_, as was last said.
  Tally tally_;
  std::deque<MembershipEvent> events_;  // The last ones.
  Actions actions_;
};

}  // namespace atl::swarm
