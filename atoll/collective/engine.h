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
// it. A stranger on a bulk connection is turned away; a member that sends what it must not is named
// to the coordinator, which ends the run.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/exchange.h"
#include "atoll/collective/session.h"
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
  virtual void welcomed(const std::string& run, const std::string& config) = 0;
  virtual void started(const StartInfo& info) = 0;
  virtual void committed(const Commit& commit) = 0;
  virtual void left() = 0;
  /// Once, and last. The engine has let go of all values and prepare functions; a job that is out
  /// still uses its own.
  virtual void failed(const std::string& reason) = 0;
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

  void ready(ReadyReport report);
  void begin(Contribution contribution, Time now);
  void report(const ProgressReport& progress);
  void request_stop();
  void leave();
  /// Gives up: tells the coordinator why.
  void trouble(const std::string& reason, Time now);

  bool over() const { return over_; }

 private:
  struct Transfer {  // A blob on its way to one member.
    swarm::Part part;
    std::shared_ptr<const Bytes> blob;
    size_t sent = 0;
  };
  struct Link {                        // To one other member.
    net::ConnectionId connection = 0;  // 0: none yet.
    bool opened = false;
    bool full = false;
    std::string lost;    // Why; empty while it stands.
    Time verdict_due{};  // When it is lost: the coordinator should have dropped the member by then.
    std::deque<Transfer> transfers;
    size_t waiting_bytes = 0;  // Of the transfers.
  };
  struct Visitor {  // An inbound connection that has not said which member it is, or says it early.
    std::optional<swarm::PeerHello> hello;
    Time since{};
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
    Time progressed{};               // When a part of it came last.
    std::vector<swarm::Part> early;  // Parts of an attempt that this member has not heard of.
    size_t early_bytes = 0;          // What they take in memory, at most.
  };
  using Rounds = std::map<int64_t, Round>;

  void dial(Time now);
  void lose_control(const std::string& reason, Time now);
  void act(swarm::Member::Actions actions, Time now);
  void start(const swarm::Start& start, int32_t number, Time now);
  void open(const swarm::OpenAttempt& attempt, Time now);
  Exchange::Plan plan_of(const swarm::OpenAttempt& attempt) const;
  void commit(const swarm::Commit& message, Time now);
  void give_up(const std::string& reason);

  void handle_bulk(net::ConnectionId connection, const Bytes& frame, Time now);
  void greet(net::ConnectionId connection, const swarm::PeerHello& hello, Time now);
  /// `part` has no data of its own.
  void receive(int32_t number, swarm::Part part, std::span<const std::byte> data,
               size_t frame_bytes, Time now);
  /// The most that the others may send of a round before this member hears of its attempt.
  size_t max_early_bytes(const Round& round) const;
  /// Queues what the exchange wants sent.
  void post(Round& round, Time now);
  bool may_encode() const;
  void prepare(Round& round);
  static void drop_means(Link& link, int64_t round);
  void lose_bulk(net::ConnectionId connection, const std::string& reason, Time now);
  void pump(int32_t number, Time now);
  /// Reports an exchange in which nothing comes any more though all connections stand.
  void check_stalls(Time now);
  /// Reports a lost link if a round needs it.
  void check_links(Time now);
  const std::string& name(int32_t number) const;
  std::optional<int32_t> number_of(net::ConnectionId connection) const;

  SessionOptions options_;
  std::string address_;
  net::Transport& transport_;
  EngineListener& listener_;
  swarm::Member member_;

  net::ConnectionId control_ = 0;
  Time links_due_ = Time::max();  // When lost links are to be looked at.
  Time give_up_at_{};
  Time next_dial_ = Time::max();
  Duration pause_{};

  std::vector<std::string> names_;
  size_t head_bytes_ = 0;          // Of a part's frame.
  std::map<int32_t, Link> links_;  // By number.
  std::map<net::ConnectionId, Visitor> visitors_;
  Rounds rounds_;
  int64_t last_committed_ = -1;             // Parts of rounds before may still be on their way.
  std::optional<swarm::Header> preparing_;  // The round whose job is out.
  bool over_ = false;
};

}  // namespace atl::collective
