#pragma once
// What the commits so far add up to, for an operator: tokens, pace, and who of those that are here
// has any part in them. Pure; it decides nothing.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/coordinator/status.h"

namespace atl::swarm {

struct CountedCommit {
  int64_t round = 0;
  int32_t fragment = 0;
  int64_t step = 0;
  std::map<int32_t, int64_t> weights;  // Tokens, of the attempt's members by number.
};

/// Not thread-safe.
class Tally {
 public:
  /// `here`: the numbers of those that were expected to take part.
  void add(const CountedCommit& commit, const std::set<int32_t>& here, Time now);

  /// Fills what follows from commits, for the run and for those of `status.islands` that have a
  /// number. Their states, and the run's steps, must be there already.
  void fill(RunStatus& status, Time now) const;

 private:
  /// A round counts the tokens since the last round of its own fragment, so every fragment counts
  /// every token. The one that is furthest says how many there were.
  struct Tokens {
    std::map<int32_t, int64_t> by_fragment;
    int64_t most() const;
  };
  struct Member {
    Tokens tokens;
    std::optional<int64_t> last_round;
    int64_t missed = 0;  // Commits since it last took part.
    int64_t empty = 0;   // Commits since it last brought anything.
    int64_t usual = 0;   // Tokens that it brought when it last brought any.
  };

  double share_of(const CountedCommit& commit, const std::set<int32_t>& here) const;
  void fill_pace(RunStatus& status, Time now) const;
  std::string alarm(const RunStatus& status) const;

  std::map<int32_t, Member> members_;  // By number.
  Tokens tokens_;
  int64_t participating_ = 0;
  std::optional<double> averaged_share_;
  std::deque<std::pair<Time, int64_t>> pace_;  // When the last commits came, and their steps.
};

}  // namespace atl::swarm
