#pragma once
// A member's side of the protocol: how it is admitted, when its rounds are exchanged, when they may
// be applied, when it must give up. A pure state machine as the coordinator's; it does not touch
// the values. collective/engine.h acts on what it decides.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/swarm/coordinator.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

struct MemberOptions {
  std::string name;
  std::string version = program_version();
  std::map<std::string, std::string> settings;  // What the user asked for; must be the run's.
  Duration silence_timeout = std::chrono::seconds(30);
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration verdict_timeout = std::chrono::seconds(2);  // For the coordinator's word after Trouble.
};

/// Not thread-safe. Every method returns actions; do them in order.
class Member {
 public:
  /// To the coordinator.
  struct Send {
    Message message;
  };
  struct Welcomed {
    std::string run;
    std::string config;
  };
  struct Started {
    Start start;
    int32_t number = 0;  // This member's.
  };
  /// Exchange the values of a round that was begun; whatever came of earlier attempts is void.
  struct Exchange {
    OpenAttempt attempt;
  };
  /// Apply what was prepared.
  struct Committed {
    Commit commit;
  };
  /// The coordinator knows that this member is done.
  struct Left {};
  /// The run is over for this member. Last action, once.
  struct Failed {
    std::string reason;
  };
  using Action = std::variant<Send, Welcomed, Started, Exchange, Committed, Left, Failed>;
  using Actions = std::vector<Action>;

  explicit Member(MemberOptions options);

  /// The control connection stands; `address` is where other members reach this one.
  Actions connected(const std::string& address, Time now);
  Actions received(const Message& message, Time now);
  Actions garbled(const std::string& reason);
  Actions coordinator_lost(const std::string& reason);
  Actions tick(Time now);

  Actions ready(std::map<std::string, std::string> facts,
                std::map<int64_t, std::string> checkpoints);
  /// `begin` without its header.
  Actions begin(int64_t round, Begin begin);
  Actions prepared(int64_t round, int32_t attempt, const Digest& digest);
  /// This member cannot go on with a round. The coordinator has the last word for a while, so that
  /// everybody hears the same reason.
  Actions trouble(const std::string& reason, Time now);
  void report(int64_t step, double loss, double tokens_per_s);
  /// Counts what exchanges do, for the next heartbeat.
  void count_moved(uint64_t amount) { moved_ += amount; }
  void set_silence_timeout(Duration timeout) { options_.silence_timeout = timeout; }
  Actions request_stop();
  Actions leave();

  Time next_deadline() const;
  /// When, by the coordinator's last word, some island last moved something: while others still
  /// work on what this one waits for, an exchange is slow, not stuck.
  Time last_moved() const { return last_moved_; }
  /// Welcomed and not yet over.
  bool joined() const { return phase_ != Phase::kIdle && phase_ != Phase::kOver; }
  bool over() const { return phase_ == Phase::kOver; }
  const std::string& run() const { return run_; }
  Header header(int64_t round = -1, int32_t attempt = -1) const;
  const Start& start() const { return start_; }
  int32_t number() const { return number_; }

 private:
  // kIdle -> kGreeting (Hello sent) -> kGathering (welcomed) -> kReady -> kTraining -> kLeaving,
  // and from each to kOver.
  enum class Phase : uint8_t { kIdle, kGreeting, kGathering, kReady, kTraining, kLeaving, kOver };
  enum class Stage : uint8_t { kBegun, kExchanging, kPrepared };
  struct Round {
    Stage stage = Stage::kBegun;
    Begin begin;
    int32_t attempt = -1;
    Digest digest{};
  };

  void send(Message message);
  void fail(std::string reason);
  /// Fails: the coordinator said something it must not.
  void protest(const std::string& what);
  Actions take();
  void on(const Welcome& message);
  void on(const Refused& message);
  void on(const Start& message);
  void on(const OpenAttempt& message);
  void on(const Commit& message);
  void on(const Goodbye& message);
  void on(const RunEnded& message);
  void on(const Alive& message);
  template <typename Other>
  void on(const Other& other);

  MemberOptions options_;
  Phase phase_ = Phase::kIdle;
  std::string run_;
  uint64_t term_ = 0;
  Start start_;
  int32_t number_ = -1;
  std::map<int64_t, Round> rounds_;
  Heartbeat progress_;
  uint64_t moved_ = 0;
  Time last_moved_{};
  Time heard_{};
  Time next_heartbeat_{};
  std::string trouble_;  // Reported; the coordinator's verdict is awaited until verdict_due_.
  Time verdict_due_{};
  Actions actions_;
};

}  // namespace atl::swarm
