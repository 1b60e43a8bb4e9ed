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
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/base/result.h"
#include "atoll/coordinator/address_calls.h"
#include "atoll/coordinator/book.h"
#include "atoll/coordinator/comeback.h"
#include "atoll/coordinator/coordinator_options.h"
#include "atoll/coordinator/gathering.h"
#include "atoll/coordinator/guests.h"
#include "atoll/coordinator/links.h"
#include "atoll/coordinator/meetings.h"
#include "atoll/coordinator/pace.h"
#include "atoll/coordinator/quorum.h"
#include "atoll/coordinator/recent_events.h"
#include "atoll/coordinator/roster.h"
#include "atoll/coordinator/round.h"
#include "atoll/coordinator/status.h"
#include "atoll/coordinator/tally.h"
#include "atoll/swarm/messages.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

struct IslandLeftOut;  // events.h

/// Not thread-safe. Every method may return actions; do them in order.
class Coordinator {
 public:
  using Connection = Seat::Connection;

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
  /// Call the member at its address, which is to be of that name where there are certificates; then
  /// say called().
  using Call = AddressCalls::Call;
  /// Something that a person watching wants to know.
  struct Log {
    Event event;
  };
  /// The run is over; the last action. Fails with the reason that RunEnded carried.
  struct Finished {
    Result<void> result;
  };
  using Action = std::variant<Persist, Send, Close, Call, Log, Finished>;
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
  /// What came of a Call. `reason` is for the operator alone: why the member cannot be reached.
  Actions called(const Call& call, AddressCalls::Answer answer, const std::string& reason,
                 Time now);
  /// Call at next_deadline() or later.
  Actions tick(Time now);
  /// The operator's Ctrl-C: the next commit (elastic: the one that has all fragments) tells all to
  /// stop; before the start the run ends.
  Actions request_stop(Time now);
  /// The authority's signed list of who is no member any more, for all members.
  Actions tell_revocations(Bytes signed_list, Time now);
  /// Ends the run for everybody now.
  Actions end(const std::string& reason);

  Time next_deadline() const;
  bool finished() const { return finished_; }
  /// What is known now. Times in it end at `now`.
  RunStatus status(Time now) const;
  const Book& book() const { return book_; }

 private:
  using State = Seat::State;

  Header header(int64_t round = -1, int32_t attempt = -1) const;
  Book::Grants record(Record record);
  void send(Connection to, Message message);
  void send_to(const Seat& seat, Message message);
  void log(Event event, bool of_membership = true);
  void broadcast(const Message& message);
  void refuse(Connection connection, const std::string& reason);
  void fail(const std::string& reason);
  /// Of a run that did not fail.
  Event outcome() const;
  void finish(Result<void> result);
  Actions take();

  void greet(Connection from, const Message& message, Time now);
  void on_guest(Connection from, const Message& message, Time now);
  void on_member(int32_t number, const Message& message, Time now);
  void admit(Connection connection, const Hello& hello, Time now);
  void resume(Connection connection, const Resume& resume, Time now);
  void take_relay(Connection connection, const RelayHello& hello);
  std::string objection_to(const RelayHello& hello) const;
  std::string objection_to(const Hello& hello) const;
  std::string objection_to(const Resume& resume) const;

  void gather(Time now);
  void start_run(Time now);
  void seat_guests(Time now);
  /// Who can be the member that it was (comeback.h).
  Comebacks may_return() const;
  /// Seats those. Whether there is one.
  bool take_back_guests();
  void seat_again(Connection connection, uint64_t first_lacking);
  void start_again(Connection connection, const Former& former, uint64_t first_lacking);
  /// Somebody came back who has the result of a commit that its members were making again.
  void tell_found(const Committed& committed);
  /// Its members have made a commit again whose result they had lost.
  void tell_again(const Round& round, Committed committed, const Digest& digest);
  void refuse_guests(int64_t step);
  void begin_first_period_anew();
  int32_t seat(Connection connection, Time now);
  Start start_of(int32_t number, bool joins) const;
  std::vector<Peer> peers() const;
  void announce_view();
  /// Finds out whether others can, as soon as it may be called.
  void call(int32_t number);
  void make_calls();

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
  void count(const Committed& committed);
  const std::string& name(int32_t number) const;
  /// Why no round goes on; empty: they do.
  std::string why_waits() const;
  /// With fewer live islands the next round waits.
  int64_t least_for_round() const;

  void advance_all();
  void advance(int64_t number);
  void open(int64_t number, Round& round, std::vector<int32_t> members);
  /// Says who is left out since it cannot reach another, where it is new.
  void note_unreachable(int64_t number, const Round& round);

  /// Tells those who cannot reach each other where to meet.
  void arrange_meetings();

  /// It abstains from the attempts that follow. `event` is without its name.
  void leave_out(Round& round, int32_t number, IslandLeftOut event);
  /// Before a commit. False: nobody is to be left out.
  bool leave_outliers_out(int64_t round_number, Round& round);

  /// Calls the next round if the islands have trained on enough.
  void call_round();
  void say_due();
  void say_due(const Seat& seat);
  void commit(int64_t number);
  Commit message_of(const Committed& committed) const;
  void grant_rows();

  CoordinatorOptions options_;
  Book book_;
  std::map<Connection, Time> strangers_;  // Connected, have said nothing; when they came.
  Guests guests_;
  Gathering gathering_;
  Roster roster_;
  Quorum quorum_;
  OpenRounds rounds_;
  std::unique_ptr<Pace> pace_;
  Links links_;
  Meetings meetings_;
  AddressCalls address_calls_;
  uint64_t view_ = 0;
  Bytes revocations_;  // Told with each view.
  // In this process. After those who left an earlier one, the run may be begun again.
  bool has_anyone_left_ = false;
  bool finished_ = false;
  Time now_;  // Of the event that is being handled.
  Time next_alive_;
  RecentEvents events_;
  Tally tally_;
  Actions actions_;
};

}  // namespace atl::swarm
