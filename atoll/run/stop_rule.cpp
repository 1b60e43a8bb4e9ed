#include "atoll/run/stop_rule.h"

#include <utility>

namespace atl::run {

StopRule::StopRule(StopWishes wishes, int64_t num_fragments)
    : wishes_(std::move(wishes)), num_fragments_(static_cast<size_t>(num_fragments)) {}

void StopRule::listen() {
  if (has_asked_ || !wishes_.interrupted || !wishes_.interrupted()) return;
  has_asked_ = true;
  if (wishes_.request_stop) wishes_.request_stop();
}

bool StopRule::ends_run(bool is_agreed) const {
  return wishes_.request_stop ? is_agreed : has_asked_;
}

void StopRule::note_round(int32_t fragment, bool with_this_island) {
  if (with_this_island && leaves()) counted_.insert(fragment);
}

}  // namespace atl::run
