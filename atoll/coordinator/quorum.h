#pragma once
// How many islands rounds need: with fewer they wait, and that is said once. Pure.
//
// Others can join after the first period only. So those who alone hold what the run begins with
// must complete it, however few they are. After a request to stop one is enough for the rounds that
// are left, unless all islands are to end together.
#include <cstdint>
#include <optional>
#include <string>

#include "atoll/base/event.h"
#include "atoll/coordinator/book.h"
#include "atoll/coordinator/coordinator_options.h"

namespace atl::swarm {

class Quorum {
 public:
  explicit Quorum(const CoordinatorOptions& options);

  /// The run begins, or goes on, with so many; 0: not known.
  void begin(int64_t num_islands);
  /// Not all fragments have had a round yet.
  bool is_first_period(const Book& book) const;
  int64_t least(const Book& book) const;
  /// Of the rounds that a request to stop still waits for.
  int64_t least_when_stopping(const Book& book) const;
  /// `num_live` islands are here, fewer than needed or not. An event where that is new.
  std::optional<Event> note(int64_t num_live, bool are_few);
  bool waits() const { return waits_; }
  /// Why, with so many.
  std::string why_waits(int64_t num_live) const;
  /// The same for want of ways between them.
  std::string why_broken_off() const;

 private:
  int64_t min_replicas_;
  int64_t num_fragments_;
  bool ends_together_;
  int64_t num_begun_with_ = 0;
  bool waits_ = false;  // As was said last.
};

}  // namespace atl::swarm
