#pragma once
// A member's side of the protocol: how it is admitted, when its rounds are exchanged, when they may
// be applied, what it has missed, when it must give up. A pure state machine as the coordinator's;
// it does not touch the values. collective/engine.h acts on what it decides.
//
// When the coordinator cannot be reached, a member keeps all that it has, exchanges go on, and it
// comes back as itself (Resume). Only when it is told that it is no member any more, or after
// `return_patience`, it gives up: then its process may join again, without its state.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/swarm/contact.h"
#include "atoll/swarm/ending.h"
#include "atoll/swarm/member_rounds.h"
#include "atoll/swarm/messages.h"
#include "atoll/swarm/pulse.h"
#include "atoll/swarm/version.h"

namespace atl::swarm {

struct MemberOptions {
  std::string name;
  std::string version = program_version();
  std::string run_name;  // To join, among the coordinator's; empty: it has but one.
  std::map<std::string, std::string> settings;  // What the user asked for; must be the run's.
  Duration silence_timeout = std::chrono::seconds(30);
  Duration heartbeat_interval = std::chrono::milliseconds(200);
  Duration return_patience = std::chrono::minutes(10);  // With a coordinator that is away.
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
  };
  /// Who the members are now.
  struct Viewed {
    std::vector<Peer> members;
    Bytes revocations;  // As View has them.
  };
  /// Exchange the values of a round that was begun; whatever came of earlier attempts is void.
  struct Exchange {
    OpenAttempt attempt;
  };
  /// Apply what was prepared.
  struct Committed {
    Commit commit;
  };
  /// A round was committed whose result this member does not have: get it from one of the commit's
  /// members. It may have been begun here; then the exchange is over.
  struct Missed {
    Commit commit;
  };
  struct Leased {
    std::vector<Units> units;
  };
  /// The rounds wait for this member from here on.
  struct TakesPart {
    Reinstated reinstated;
  };
  /// Begin this round as soon as may be. May be said twice.
  struct Called {
    Due due;
  };
  /// Others cannot call this member at the address that they are told.
  struct Unreachable {
    std::string address;
    std::string fault;
  };
  /// That member, which this one cannot reach, is to be met there.
  struct Meets {
    int32_t other = 0;
    net::Meeting meeting;
  };
  /// Two others will meet here.
  struct PassesOn {
    net::CircuitId circuit{};
  };
  /// Why no round goes on, for people; empty: they do again.
  struct Waits {
    std::string why;
  };
  /// The coordinator is not there; connect again, and then say connected().
  struct Reconnect {
    std::string reason;
  };
  /// The coordinator knows that this member is done.
  struct Left {};
  /// The run is over for this member. Last action, once.
  struct Failed {
    std::string reason;
    Ending ending = Ending::kFailure;
  };
  using Action =
      std::variant<Send, Welcomed, Started, Viewed, Exchange, Committed, Missed, Leased, TakesPart,
                   Called, Unreachable, Meets, PassesOn, Waits, Reconnect, Left, Failed>;
  using Actions = std::vector<Action>;

  explicit Member(MemberOptions options);

  /// The control connection stands; `address` is where other members reach this one.
  Actions connected(const std::string& address, Time now);
  Actions received(const Message& message, Time now);
  Actions garbled(const std::string& reason, Time now);
  Actions coordinator_lost(const std::string& reason, Time now);
  Actions tick(Time now);

  Actions ready(std::map<std::string, std::string> facts,
                std::map<int64_t, std::string> checkpoints, Former former = {});
  /// `begin` without its header. Said only if this member takes part in the round.
  Actions begin(int64_t round, Begin begin);
  Actions prepared(int64_t round, int32_t attempt, const Digest& digest, Measures measures);
  /// What `contributor` sent in that attempt cannot be decoded to finite values.
  Actions unusable(int64_t round, int32_t attempt, int32_t contributor, const std::string& reason);
  /// All that Missed named was fetched.
  Actions caught_up();
  /// `way` where it is up.
  Actions link_changed(int32_t other, bool up, const std::string& reason, net::Way way = {});
  /// A member broke the protocol (`culprit`), or this one cannot go on (-1).
  Actions trouble(const std::string& reason, int32_t culprit = -1);
  void report(int64_t step, double loss, double tokens_per_s, int64_t num_trained);
  /// Counts what exchanges do, for the next heartbeat.
  void count_moved(uint64_t amount) { pulse_.count_moved(amount); }
  void set_silence_timeout(Duration timeout) { options_.silence_timeout = timeout; }
  Actions request_stop();
  Actions leave();

  Time next_deadline() const;
  /// When, by the coordinator's last word, some island last moved something: while others still
  /// work on what this one waits for, an exchange is slow, not stuck.
  Time last_moved() const { return last_moved_; }
  bool over() const { return phase_ == Phase::kOver; }
  bool is_member() const { return phase_ == Phase::kTraining || phase_ == Phase::kLeaving; }
  /// The rounds wait for this member from this one on; none: it is behind.
  std::optional<int64_t> first_round() const { return first_round_; }
  const std::string& run() const { return run_; }
  Header header(int64_t round = -1, int32_t attempt = -1) const;
  uint64_t view() const { return view_; }
  int32_t number() const { return rounds_.number(); }
  uint64_t num_commits() const { return rounds_.num_commits(); }

 private:
  // kIdle -> kGreeting (Hello sent) -> kGathering (welcomed) -> kReady -> kTraining -> kLeaving,
  // and from each to kOver.
  enum class Phase : uint8_t { kIdle, kGreeting, kGathering, kReady, kTraining, kLeaving, kOver };

  void send(Message message);
  void fail(std::string reason, Ending ending = Ending::kFailure);
  /// Fails: the coordinator said something it must not.
  void protest(const std::string& what);
  Actions take();
  void say_again();
  void on(const Welcome& message);
  void on(const Refused& message);
  void on(const Start& message);
  void on(const Resumed& message);
  void on(const View& message);
  void on(const OpenAttempt& message);
  void on(const Commit& message);
  void on(const Lease& message);
  void on(const Reinstated& message);
  void on(const Due& message);
  void on(const AddressTried& message);
  void on(const Meet& message);
  void on(const PassOn& message);
  void on(const Goodbye& message);
  void on(const RunEnded& message);
  void on(const Alive& message);
  template <typename Other>
  void on(const Other& other);

  MemberOptions options_;
  Phase phase_ = Phase::kIdle;
  Contact contact_;
  Pulse pulse_;
  std::string run_;
  uint64_t term_ = 0;
  uint64_t view_ = 0;
  Ready ready_;
  MemberRounds rounds_;
  std::optional<int64_t> first_round_;
  int64_t num_leased_ = 0;  // Units, ever.
  bool wants_stop_ = false;
  Time last_moved_{};
  std::string waits_;  // What the coordinator said last.
  Actions actions_;
};

}  // namespace atl::swarm
