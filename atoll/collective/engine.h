#pragma once
// Everything that a session does, without its thread: joins the coordinator (with back-off),
// connects the members to each other, moves the parts, prepares and commits. It connects the pure
// state machines (swarm/member.h, exchange.h) to a transport; the session drives it with real time,
// the tests with simulated time. Not thread-safe.
//
// Work on values comes in units of at most one segment, which the owner of the engine runs between
// events: nothing that arrives waits for more than one. The outer step cannot be cut: it is handed
// to the owner, who runs it beside the events.
//
// Bulk connections: a member connects to those of lower number, says PeerHello, and both send over
// it; one that breaks is made again. A stranger on a bulk connection is turned away; a member that
// sends what it must not is named to the coordinator, which puts it out. Two members that cannot
// reach each other have a relay in the attempt: it passes on, chunk by chunk, what they send each
// other, and reads none of it.
//
// What a member has missed (a round without it, the state when it joins) it fetches from the others
// over the same connections, beside the parts of rounds (retrieval.h, lending_share.h).
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/exchange.h"
#include "atoll/collective/lending_share.h"
#include "atoll/collective/retrieval.h"
#include "atoll/collective/session.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/member.h"

namespace atl::collective {

/// Computes the outer step of a round; owns what the engine had of it. Does not throw.
using PrepareJob = std::function<Result<Digest>()>;

/// Copies a fragment's state after a round; nothing if the state is of another. Does not throw.
using CopyJob = std::function<std::shared_ptr<const Bytes>()>;

/// What the engine tells its owner, from within the call that caused it.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  /// Run this, on any thread, drop it, and call Engine::prepared() with what came of it. It may
  /// take long, for signs of life go on meanwhile. One is out at a time, and no other work is then.
  virtual void prepare(PrepareJob job) = 0;
  /// The same with Engine::copied(), beside prepare() and other work. One is out at a time.
  virtual void copy(CopyJob job) = 0;
  virtual void welcomed(const std::string& run, const std::string& config) = 0;
  virtual void started(const StartInfo& info) = 0;
  /// `begun`: begin() was called for its round.
  virtual void committed(const Commit& commit, bool begun) = 0;
  virtual void leased(const std::vector<swarm::Units>& units) = 0;
  /// Elastic pace: a snapshot is wanted. May be said twice.
  virtual void called(const DueRound& due) = 0;
  /// The other members are at this step, and the rounds wait for this one again.
  virtual void reinstated(int64_t step) = 0;
  /// What fetch_state() asked for.
  virtual void fetched(int32_t fragment, Result<FetchedState> state) = 0;
  virtual void left() = 0;
  /// Once, and last. The engine has let go of all values and prepare functions; a job that is out
  /// still uses its own.
  virtual void failed(const std::string& reason, swarm::Ending ending) = 0;
};

class Engine {
 public:
  /// `address` is where other members reach this one. All references must outlive the engine.
  Engine(SessionOptions options, std::string address, net::Transport& transport,
         EngineListener& listener);
  ~Engine();

  /// Starts to join. `now` is when the patience begins.
  void connect(Time now);
  void handle(net::Event event, Time now);
  /// Call at next_deadline() or later.
  void tick(Time now);
  Time next_deadline() const;
  /// Does one unit of an exchange. False: nothing is to be done before the next event or tick.
  bool work(Time now);
  /// What came of the job that was handed out.
  void prepared(const Result<Digest>& digest, Time now);
  void copied(std::shared_ptr<const Bytes> state, Time now);

  void ready(ReadyReport report);
  void begin(Contribution contribution, Time now);
  void report(const ProgressReport& progress);
  void request_stop();
  void leave();
  /// Of a run that this member joins.
  void fetch_state(int32_t fragment, size_t size, Time now);
  void serve_state(StateProvider provider) { provider_ = std::move(provider); }
  /// To be given to members that lack it.
  void keep_result(const std::shared_ptr<const CommittedRound>& committed);
  /// Gives up: tells the coordinator why.
  void trouble(const std::string& reason, Time now);

  bool over() const { return over_; }

 private:
  struct Transfer {  // A blob, or bytes [sent, end) of it, on its way to one member.
    swarm::Part part;
    std::shared_ptr<const Bytes> blob;
    size_t sent = 0;
    size_t end = 0;
    size_t base = 0;  // Where the blob begins within what the part is of.
  };
  struct Link {  // To one other member.
    std::string address;
    net::ConnectionId connection = 0;  // 0: none.
    bool opened = false;
    Time opened_at{};
    bool full = false;
    std::string lost;    // Why there is none; empty while it stands or was not there yet.
    Time verdict_due{};  // When the coordinator hears of it, if it has not dropped the member.
    bool was_reported = false;
    Time next_dial = Time::max();
    Duration pause{};
    std::deque<Transfer> transfers;  // Of rounds.
    std::deque<Transfer> lent;       // What was fetched: beside rounds, a share of the line.
    size_t waiting_bytes = 0;        // Of the transfers.
  };
  struct Visitor {  // An inbound connection that has not said which member it is, or says it early.
    std::optional<swarm::PeerHello> hello;
    std::vector<swarm::Fetch> early;  // What it asked for behind it.
    Time since{};
  };
  struct EarlyPart {
    int32_t over = 0;  // Whose link brought it.
    swarm::Part part;
  };
  struct Round {
    // The job has them too; the exchange is there from the first attempt on.
    std::shared_ptr<const Contribution> contribution;
    std::shared_ptr<Exchange> exchange;
    Time begun{};
    bool prepared = false;                   // Or about to be.
    std::optional<swarm::OpenAttempt> next;  // Opened while the job of the one before is out.
    std::vector<std::string> abstainers;
    double own_share = 0;
    int64_t bytes_sent = 0;
    int64_t bytes_received = 0;
    Time progressed{};             // When a part of it came last.
    std::vector<EarlyPart> early;  // Parts of an attempt that this member has not heard of.
    size_t early_bytes = 0;        // What they take in memory, at most.
    bool decided = false;          // Without a result here, which is being fetched.
    bool was_announced = false;    // The coordinator waits for this member's part.
    swarm::OpenAttempt newest;     // That this member has heard of: what it relays, and
    std::map<std::pair<int32_t, int32_t>, size_t> relayed_bytes;  // how much, from whom to whom.
  };
  using Rounds = std::map<int64_t, Round>;
  /// Committed without a result here: it is fetched, and handed on in the order of the commits.
  struct Missing {
    swarm::Commit commit;
    std::shared_ptr<const CommittedRound> record;  // With the result.
  };
  struct StateFetch {
    size_t size = 0;  // 0: it was not asked for yet.
    swarm::Held held;
  };

  void dial(Time now);
  void lose_control(const std::string& reason, Time now);
  void reconnect(Time now);
  void act(swarm::Member::Actions actions, Time now);
  void start(const swarm::Start& start, Time now);
  void view(const std::vector<swarm::Peer>& members, Time now);
  void take_part(const swarm::Reinstated& reinstated, Time now);
  void announce(int64_t number, Round& round, Time now);
  int64_t link_rate() const;
  void open(const swarm::OpenAttempt& attempt, Time now);
  void hear(Round& round, const swarm::OpenAttempt& attempt);
  void take_early(Round& round, Time now);
  Exchange::Plan plan_of(const swarm::OpenAttempt& attempt) const;
  void commit(const swarm::Commit& message, Time now);
  void give_up(const std::string& reason, swarm::Ending ending = swarm::Ending::kFailure);

  // What was missed, and what others have (engine_fetch.cpp).
  void miss(const swarm::Commit& message, Time now);
  /// The round is no longer exchanged here.
  void let_go(Round& round, const swarm::Commit& message);
  void hand_on_missed(Time now);
  void ask_around(Time now);
  void leave_silent_donors(Time now);
  void ask_again(Time now);
  static std::string nobody_holds(const Retrieval& retrieval);
  void fetch_held(int32_t fragment);
  void answer(int32_t number, const swarm::Fetch& fetch, Time now);
  void take_fetched(int32_t number, const swarm::Part& part, std::span<const std::byte> data,
                    Time now);
  void refused(int32_t number, const swarm::NotHeld& answer, Time now);
  void finish(Retrieval& retrieval, Time now);
  void keep_snapshots(Time now);
  void answer_state(int32_t number, const swarm::Fetch& fetch, Time now);
  void lend_piece(int32_t number, const swarm::Fetch& fetch, std::shared_ptr<const Bytes> blob,
                  Time now);
  void deny(int32_t number, const swarm::Fetch& fetch);
  /// They are made again over the next connection.
  void forget_requests_of(int32_t number);

  // Connections between members (engine_links.cpp).
  void dial_peer(int32_t number, Time now);
  void handle_bulk(net::ConnectionId connection, const Bytes& frame, Time now);
  void greet(net::ConnectionId connection, const swarm::PeerHello& hello, Time now);
  /// A part and its data, which lies elsewhere.
  void take(int32_t number, swarm::Part part, std::span<const std::byte> data, size_t frame_bytes,
            Time now);
  /// Of a round; `over` is whose link brought it.
  void receive(int32_t over, swarm::Part part, std::span<const std::byte> data, size_t frame_bytes,
               Time now);
  /// What another member sends another.
  void relay(Round& round, swarm::Part part, std::span<const std::byte> data, Time now);
  /// Whose link parts of the exchange take, to this member and from it.
  static int32_t neighbour(const Exchange& exchange, int32_t number);
  /// The most that one member may send another of a round's attempt.
  size_t most_bytes(const Round& round) const;
  /// Queues what the exchange wants sent.
  void post(Round& round, Time now);
  bool may_encode() const;
  /// Of an exchange that failed.
  void blame(const Exchange& exchange, const std::string& reason, Time now);
  void prepare(Round& round);
  void drop_transfers(int64_t round, const std::function<bool(const Transfer&)>& is_void);
  void lose_bulk(net::ConnectionId connection, const std::string& reason, Time now);
  void pump(int32_t number, Time now);
  void lend(Time now);
  /// False: nothing is to be lent, or may be now.
  bool lend_chunk(Link& link, bool rounds_wait, Time now);
  void drop_link(int32_t number, const std::string& reason, Time now);
  bool send_some(Link& link, std::deque<Transfer>& queue, Time now);
  /// Breaks connections over which nothing comes any more though they stand.
  void check_stalls(Time now);
  std::vector<int32_t> silent_to_relay(const Round& round) const;
  /// Reports lost links, and tries again.
  void check_links(Time now);
  void accuse(int32_t number, const std::string& reason, Time now);
  const std::string& name(int32_t number) const;
  std::optional<int32_t> number_of(net::ConnectionId connection) const;

  SessionOptions options_;
  std::string address_;
  net::Transport& transport_;
  EngineListener& listener_;
  swarm::Member member_;

  net::ConnectionId control_ = 0;
  bool misses_control_ = false;   // And the user knows.
  Time links_due_ = Time::max();  // When lost links are to be looked at next.
  Time give_up_at_{};
  Time next_dial_ = Time::max();
  Duration pause_{};

  std::map<int32_t, std::string> names_;  // Of all members that ever were, by number.
  size_t head_bytes_ = 0;                 // Of a part's frame; 0 before the start.
  std::map<int32_t, Link> links_;         // By number.
  std::map<net::ConnectionId, Visitor> visitors_;
  Rounds rounds_;
  std::map<int32_t, swarm::Held> held_;  // The newest commit, by fragment.
  std::shared_ptr<RoundMemory> memory_;
  std::optional<swarm::Header> preparing_;  // The round whose job is out.
  std::map<uint64_t, Missing> missing_;     // By index.
  std::vector<Retrieval> retrievals_;
  std::map<int32_t, StateFetch> state_fetches_;                       // By fragment.
  std::map<int64_t, std::shared_ptr<const CommittedRound>> results_;  // Of past rounds, to lend.
  size_t result_bytes_ = 0;
  LendingShare lending_;
  int32_t last_lent_to_ = -1;
  StateProvider provider_;
  struct Snapshot {
    int64_t round = 0;
    std::shared_ptr<const Bytes> bytes;
    Time used{};
  };
  std::map<int32_t, Snapshot> snapshots_;  // By fragment.
  std::optional<swarm::Fetch> copying_;    // The first that asked for what is being copied.
  std::vector<std::pair<int32_t, swarm::Fetch>> unanswered_;  // Until that is done; by number.
  bool over_ = false;
};

}  // namespace atl::collective
