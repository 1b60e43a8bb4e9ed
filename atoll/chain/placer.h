#pragma once
// Who of one model's servers is told to serve what, and when: newcomers, once those that come
// together are here; then one move at a time, where a gap is to be filled or the bottleneck is
// worth it (placement.h). Pure: leases and the time go in, orders come out.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/chain/messages.h"
#include "atoll/chain/placement.h"

namespace atl::chain {

/// A server, as its directory sees it.
struct Seat {
  Lease lease;
  bool is_here = true;  // Its connection stands: it can be told something.
  /// The layers that it was told to serve, until it does.
  std::optional<Span> told;
  Time told_at{};      // Or came.
  bool moves = false;  // It served others before.
  /// It did not do what it was told to: until then it is told nothing.
  Time idle_until{};

  /// That it has or is to have; empty while there are none, and of one that leaves.
  Span layers() const;
  bool is_newcomer(Time now) const;
  bool may_move(Time now) const;
  /// Until it serves what it was told to. Who loads what another directory told it may be on a
  /// move.
  bool is_on_move(Time now) const;
};

/// Those of one model by name. The pointers are never null.
using Seats = std::map<std::string, Seat*>;

class Placer {
 public:
  /// Newcomers are placed when none has come for so long, and none waits longer than the latter.
  static constexpr Duration kGathering = std::chrono::seconds(1);
  static constexpr Duration kLongestGathering = std::chrono::seconds(3);
  /// Whether somebody is to move is thought about so often, and when servers come or go.
  static constexpr Duration kBalancing = std::chrono::seconds(10);
  /// Who was told to serve layers begins to load them within this,
  static constexpr Duration kObeying = std::chrono::seconds(15);
  /// and serves them within this; else others go on without it.
  static constexpr Duration kLoading = std::chrono::minutes(10);
  static constexpr Duration kIdle = std::chrono::minutes(1);

  struct Order {
    std::string server;
    Span layers;
    std::string reason;  // As in ServerPlaced.
  };

  /// Notes in the seats what they are told.
  std::vector<Order> decide(const Seats& seats, Time now);
  /// Those that did not do what they were told to. They are told something else in time.
  static std::vector<std::string> give_up(const Seats& seats, Time now);

 private:
  std::vector<Order> place(const Seats& seats, Time now);
  std::vector<Order> move(const Seats& seats, Time now);

  size_t num_newcomers_ = 0;
  Time first_newcomer_{};
  Time last_newcomer_{};
  std::vector<Span> known_;  // Layers, when moves were thought about last.
  Time next_balancing_{};
};

/// The seats as placement.h wants them, in their order. Speeds are those of one text's tokens, as
/// shares of their median; of who has not measured it, the median.
std::vector<Host> hosts_of(const Seats& seats, Time now);

/// How many layers nobody serves now.
int32_t num_unserved(const Seats& seats);

}  // namespace atl::chain
