#include "atoll/collective/averager.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::collective {

void Alone::begin(Contribution contribution) {
  commits_.push_back({.round = contribution.round,
                      .digest = contribution.prepare(contribution.values),
                      .members = {"alone"}});
}

Result<Commit> Alone::wait(int64_t round) {
  const auto found = std::ranges::find(commits_, round, &Commit::round);
  ATOLL_CHECK(found != commits_.end());
  Commit commit = *found;
  commits_.erase(found);
  return commit;
}

}  // namespace atl::collective
