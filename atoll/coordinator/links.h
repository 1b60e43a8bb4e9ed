#pragma once
// Which pairs of members cannot reach each other, and which links are better left alone although
// they stand. Pure; the coordinator owns one, and plans each attempt by what it says.
//
// A link that broke in an exchange may stand again and carry nothing (a path that drops what is
// large). That round does without it; when it breaks in a later one before it has carried any, so
// do twice as many, up to kLongestMistrust.
//
// Invariants: a pair is named with its lower number first, and by members alone: who is none any
// more is in none of them.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "atoll/swarm/rules.h"

namespace atl::swarm {

class Links {
 public:
  using Pair = Pairs::value_type;
  static constexpr int64_t kLongestMistrust = 8;  // Rounds.

  /// What becomes of a pair in an attempt.
  struct Detour {
    Pair pair;
    std::optional<Relay> relay;  // Nothing: one of the two is left out.
  };

  /// One end says that it cannot reach the other. False: so it was known; both ends say it.
  bool broke(const Pair& pair);
  /// It broke while that round was exchanged in these ways; rounds in rising order.
  void mistrust(const Pair& pair, int64_t round, const Ways& ways);
  /// They reach each other again. False: so it was known.
  bool stands(const Pair& pair);
  /// A round was committed that went these ways: the links that it used carry something.
  void carried(const Ways& ways);
  /// The member says again whom it cannot reach.
  void forget_reports_of(int32_t number);
  /// The member is none any more, or another process.
  void forget(int32_t number);

  /// Pairs that do not send each other anything directly in that round.
  Pairs closed_in(int64_t round) const;
  /// Pairs that cannot, trusted or not.
  const Pairs& broken() const { return broken_; }
  /// What these ways mean for pairs that are closed in that round, where it is other than was told
  /// last. Only pairs of `wanting`, of whom one at least takes part.
  std::vector<Detour> news(int64_t round, const Ways& ways, const std::set<int32_t>& wanting);

 private:
  struct Mistrust {
    int64_t last_round = -1;  // That does without the link.
    int64_t num_rounds = 0;   // That it was last done without, in a row.
  };

  Pairs broken_;
  std::map<Pair, Mistrust> mistrusted_;
  std::map<Pair, bool> is_relayed_;  // As was told last.
};

}  // namespace atl::swarm
