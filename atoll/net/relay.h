#pragma once
// The third party's side where two members of a run meet that cannot reach each other: tells each
// where it sees the other, and passes on what they say, which it cannot read, as they encrypt it
// end to end (net/meeting.h). It keeps nothing of it beyond a short buffer each way.
//
// Thread-safe. What happens to members happens on a loop of its own.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/net/byte_stream.h"
#include "atoll/net/door.h"
#include "atoll/net/event_loop.h"
#include "atoll/net/token_bucket.h"
#include "atoll/net/transport.h"
#include "atoll/net/trust.h"

namespace atl::net {

struct RelayLimits {
  int num_circuits = 256;
  /// Of one member, by its name; in the clear of one host.
  int circuits_per_member = 32;
  /// Two meet in circuits that expect() was told of, and in no others.
  bool only_expected = false;
  /// How long one waits for the other.
  Duration partner_patience = std::chrono::seconds(10);
  /// A circuit on which nothing travels ends.
  Duration idle_patience = std::chrono::minutes(5);
  /// What passes in all, and on one circuit, both ways together; 0: unlimited.
  double bytes_per_second = 0;
  double circuit_bytes_per_second = 0;
};

struct RelayTraffic {
  int64_t num_circuits = 0;  // On which two have met.
  int64_t num_circuits_ever = 0;
  int64_t bytes = 0;
};

class Relay {
 public:
  /// The clock must outlive the relay.
  Relay(RelayLimits limits, const Clock& clock);
  /// Ends every circuit.
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  /// Of a member that was greeted for it. `trust` is by which it is believed, null in the clear.
  void take(std::unique_ptr<ByteStream> stream, std::shared_ptr<Door::Place> place,
            std::shared_ptr<const Trust> trust);
  /// Two will meet in that circuit soon, or are there already.
  void expect(const CircuitId& circuit);
  /// Somebody was revoked: ends circuits of members that are not believed any more.
  void end_revoked();
  RelayTraffic traffic() const;

 private:
  struct Member;
  struct Circuit;
  using MemberPtr = std::shared_ptr<Member>;

  void begin(const MemberPtr& member);
  void on_ready(const MemberPtr& member, uint32_t ready);
  void read_request(const MemberPtr& member);
  std::string objection_to(const Member& member) const;
  void seat(const MemberPtr& member);
  /// Where both are there, and may be.
  void join(const std::shared_ptr<Circuit>& circuit);
  void refuse(const MemberPtr& member, const std::string& why);
  void drop(const MemberPtr& member);
  void end(const std::shared_ptr<Circuit>& circuit);
  void pump(const std::shared_ptr<Circuit>& circuit);
  bool pass(Circuit& circuit, Member& from, Member& to);
  std::optional<Duration> wait_for_tokens(const Circuit& circuit) const;
  void watch(const MemberPtr& member, uint32_t events);
  void look_for_idleness(const std::shared_ptr<Circuit>& circuit);

  const RelayLimits limits_;
  std::atomic<int64_t> num_circuits_ = 0;
  std::atomic<int64_t> num_circuits_ever_ = 0;
  std::atomic<int64_t> bytes_ = 0;
  // Of the loop alone:
  std::set<MemberPtr> members_;
  std::map<std::string, int> by_owner_;
  std::map<std::string, std::shared_ptr<Circuit>> circuits_;  // By the run and the circuit's id.
  std::map<CircuitId, Time> expected_;                        // Since when.
  std::optional<TokenBucket> bucket_;
  EventLoop loop_;  // Goes first.
};

}  // namespace atl::net
