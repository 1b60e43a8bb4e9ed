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
// reach each other are told where to meet (net/relay.h).
//
// What a member has missed (a round without it, the state when it joins) it fetches from the others
// over the same connections, beside the parts of rounds.
//
// What can be decided alone is decided elsewhere: links.h has the connections and their queues,
// fetcher.h what is missing here, lender.h what others may have, exchange.h the parts of a round.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/backoff.h"
#include "atoll/collective/exchange.h"
#include "atoll/collective/fetcher.h"
#include "atoll/collective/lender.h"
#include "atoll/collective/links.h"
#include "atoll/collective/session.h"
#include "atoll/collective/visitors.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/member.h"

namespace atl::collective {

/// Computes the outer step of a round; owns what the engine had of it. Does not throw.
using PrepareJob = std::function<Result<Digest>()>;

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
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

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
  void serve_state(StateProvider provider) { lender_.provide(std::move(provider)); }
  /// Gives up: tells the coordinator why.
  void trouble(const std::string& reason, Time now);

  bool over() const { return over_; }

 private:
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
    Time progressed{};               // When a part of it came last.
    bool has_lost_link = false;      // In this attempt: another will follow.
    std::vector<swarm::Part> early;  // Of an attempt that this member has not heard of.
    size_t early_bytes = 0;          // What they take in memory, at most.
    bool decided = false;            // Without a result here, which is being fetched.
    bool was_announced = false;      // The coordinator waits for this member's part.
  };

  void dial();
  void lose_control(const std::string& reason, Time now);
  void reconnect(Time now);
  void act(swarm::Member::Actions actions, Time now);
  void start(const swarm::Start& start, Time now);
  void view(const std::vector<swarm::Peer>& members, Time now);
  void take_part(const swarm::Reinstated& reinstated, Time now);
  void give_up(const std::string& reason, swarm::Ending ending = swarm::Ending::kFailure);

  // What was missed, and what others have (engine_fetch.cpp).
  void miss(const swarm::Commit& message, Time now);
  /// The round is no longer exchanged here.
  void let_go(Round& round, const swarm::Commit& message);
  void hand_on_missed(Time now);
  Commit missed_commit(const Fetcher::Missing& missing, const Round* begun, Time now) const;
  std::vector<Fetcher::Donor> donors() const;
  void ask_around(Time now);
  void ask_again(Time now);
  void take_fetched(int32_t number, const swarm::Part& part, std::span<const std::byte> data,
                    Time now);
  void answer(int32_t number, const swarm::Fetch& fetch, Time now);
  void give(const Lender::Answer& answer, Time now);
  void start_copy();

  // Connections between members (engine_links.cpp).
  swarm::PeerHello hello_to(int32_t number) const;
  void dial_peer(int32_t number, Time now);
  void meet_peer(int32_t number, const net::Meeting& meeting, Time now);
  /// A connection that was dialled stands.
  void reached(const net::Opened& opened, Time now);
  void handle_bulk(net::ConnectionId connection, const Bytes& frame, Time now);
  void handle_visitor(net::ConnectionId connection, const swarm::Message& message, Time now);
  void handle_peer(int32_t number, swarm::Message message, size_t frame_bytes, Time now);
  void greet(net::ConnectionId connection, const swarm::PeerHello& hello, Time now);
  /// A part and its data, which lies elsewhere.
  void take(int32_t number, swarm::Part part, std::span<const std::byte> data, size_t frame_bytes,
            Time now);
  void drop_link(int32_t number, const std::string& reason, Time now);
  /// Breaks connections over which nothing comes any more though they stand.
  void check_stalls(Time now);
  /// Reports lost links, and tries again.
  void check_links(Time now);
  void accuse(int32_t number, const std::string& reason, Time now);
  const std::string& name(int32_t number) const;

  // Rounds (engine_rounds.cpp).
  void announce(int64_t number, Round& round, Time now);
  int64_t link_rate() const;
  void open(const swarm::OpenAttempt& attempt, Time now);
  void take_early(Round& round, Time now);
  Exchange::Plan plan_of(const swarm::OpenAttempt& attempt) const;
  void commit(const swarm::Commit& message, Time now);
  /// Of a round; `from` is whose link brought it.
  void receive(int32_t from, swarm::Part part, std::span<const std::byte> data, size_t frame_bytes,
               Time now);
  /// The most that one member may send another of a round's attempt.
  static size_t most_bytes(const Round& round);
  /// Queues what the exchange wants sent.
  void post(Round& round, Time now);
  void count_sent(int64_t round, size_t frame_bytes, Time now);
  /// Of an exchange that failed.
  void blame(const Exchange& exchange, const std::string& reason, Time now);
  void prepare(Round& round);

  SessionOptions options_;
  std::string address_;
  net::Transport& transport_;
  EngineListener& listener_;
  swarm::Member member_;

  net::ConnectionId control_ = 0;
  bool misses_control_ = false;  // And the user knows.
  Time give_up_at_{};
  Backoff redial_;  // Of the coordinator.

  std::map<int32_t, std::string> names_;  // Of all members that ever were, by number.
  size_t head_bytes_ = 0;                 // Of a part's frame; 0 before the start.
  Links links_;
  Visitors visitors_;
  std::map<int64_t, Round> rounds_;
  std::shared_ptr<RoundMemory> memory_;
  std::optional<swarm::Header> preparing_;  // The round whose job is out.
  Fetcher fetcher_;
  Lender lender_;
  std::vector<std::shared_ptr<const CommittedRound>> newest_rounds_;  // Until the Start.
  bool over_ = false;
};

}  // namespace atl::collective
