#pragma once
// Which pairs of members cannot reach each other, and which links are better left alone although
// they stand. Pure; the coordinator owns one, and plans each attempt by what it says.
//
// A link that breaks in an exchange a second time, before it has carried any, may stand and carry
// nothing (a path that drops what is large). One round does without it; when it breaks again, two
// do, up to kLongestMistrust.
//
// Both ends tell of each break, and that it is over, in this order; one may be a while behind the
// other. What the n-th break of one end is to the other is its n-th, too: it counts once, and is
// over when one of them says so of that break, or of a later one.
//
// Invariants: a pair is named with its lower number first, and by members alone: who is none any
// more is in none of them.
#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/rules.h"

namespace atl::swarm {

class Links {
 public:
  using Pair = Pairs::value_type;
  static constexpr int64_t kLongestMistrust = 8;  // Rounds.
  static constexpr Duration kMending = std::chrono::seconds(2);

  /// The member says that it cannot reach the other. False: so it was known, or is over by now.
  bool broke(int32_t member, int32_t other, Time now);
  /// It broke while that round was exchanged by these; rounds in rising order. Whether it is done
  /// without from here on.
  bool mistrust(const Pair& pair, int64_t round, const std::vector<int32_t>& members);
  /// The member says that it reaches the other again. False: so it was known. Through a relay is
  /// another path, and trusted once.
  bool stands(int32_t member, int32_t other, net::Way way);
  /// A round of these was committed: the links between them carry something.
  void carried(const std::vector<int32_t>& members);
  /// The member says again whom it cannot reach.
  void forget_reports_of(int32_t number);
  /// The member is none any more, or another process.
  void forget(int32_t number);

  /// Pairs that do not send each other anything in that round.
  Pairs closed_in(int64_t round) const;
  /// Pairs that cannot, trusted or not.
  Pairs broken() const;
  bool is_broken(const Pair& pair) const;
  bool any_broken() const;
  /// Whether a link between two of these broke within kMending: it may stand again soon.
  bool may_mend(const std::vector<int32_t>& members, Time now) const;
  /// The pairs of which one is not among the members of that round's attempt since they do not
  /// reach each other; where that is new, and only of `wanting`.
  std::vector<Pair> news(int64_t round, const std::vector<int32_t>& members,
                         const std::set<int32_t>& wanting);

 private:
  /// What one end says of a link.
  struct Reports {
    int64_t num_breaks = 0;
    bool is_down = false;
  };
  struct State {
    Reports low, high;     // Of the end of lower number, and of the other.
    int64_t num_over = 0;  // Breaks.
    Time since{};          // The last one.

    int64_t num_breaks() const { return std::max(low.num_breaks, high.num_breaks); }
    bool is_broken() const { return num_breaks() > num_over; }
  };
  struct Mistrust {
    int64_t last_round = -1;  // That does without the link.
    int64_t num_rounds = -1;  // That it was last done without, in a row; -1: it was never.
    bool has_met = false;     // It went through a relay since: if it breaks still, it is no path.
  };

  Reports& reports_of(int32_t member, int32_t other);

  std::map<Pair, State> states_;
  std::map<Pair, Mistrust> mistrusted_;
  Pairs told_;  // That one of them is left out.
};

}  // namespace atl::swarm
