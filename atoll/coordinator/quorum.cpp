#include "atoll/coordinator/quorum.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/coordinator/events.h"

namespace atl::swarm {

Quorum::Quorum(const CoordinatorOptions& options)
    : min_replicas_(options.min_replicas),
      num_fragments_(options.num_fragments),
      ends_together_(options.ends_together) {}

void Quorum::begin(int64_t num_islands) {
  num_begun_with_ = num_islands;
  waits_ = false;  // Whoever is here begins.
}

bool Quorum::is_first_period(const Book& book) const {
  return std::cmp_less(book.held().size(), num_fragments_);
}

int64_t Quorum::least(const Book& book) const {
  const int64_t least = std::max<int64_t>(min_replicas_, 1);
  return is_first_period(book) && num_begun_with_ > 0 ? std::min(least, num_begun_with_) : least;
}

int64_t Quorum::least_when_stopping(const Book& book) const {
  return ends_together_ ? least(book) : 1;
}

std::optional<Event> Quorum::note(int64_t num_live, bool are_few) {
  if (std::exchange(waits_, are_few) == are_few) return {};
  return are_few ? Event(RoundsWait{.live = num_live, .least = min_replicas_})
                 : RoundsGoOn{.live = num_live, .least = min_replicas_};
}

std::string Quorum::why_waits(int64_t num_live) const {
  return fmt::format("rounds wait: {} of at least {} islands (swarm.min_replicas)", num_live,
                     min_replicas_);
}

std::string Quorum::why_broken_off() const {
  return fmt::format(
      "rounds wait: of at least {} islands (swarm.min_replicas) some do not reach each other",
      min_replicas_);
}

}  // namespace atl::swarm
