#pragma once
// What an island did over all of its processes, as the launcher that starts them again saw it: a
// killed process leaves no summary, but its last progress. A pure state machine: it is told what
// happened, and when. LibTorch-free.
#include <optional>

#include "atoll/base/clock.h"
#include "atoll/run/progress.h"

namespace atl::run {

class IslandHistory {
 public:
  /// Its process trains. Of the first word after an absence this is how long that lasted: from the
  /// end of the process before to the first step of this one.
  std::optional<Duration> heard(const Progress& progress, Time now);
  /// Its process was killed.
  void lost(Time now);
  /// Whether to start it again: not when its last processes were all killed before they trained.
  bool may_return() const;
  /// The step that it was last heard of.
  int64_t step() const { return newest_.step; }
  /// The summary of the last process, with what those before it did.
  Summary whole(Summary last) const;

 private:
  Progress newest_;  // Of the process that is there, or was last.
  bool has_trained_ = false;
  int num_in_vain_ = 0;  // Processes in a row that were killed before they trained.
  std::optional<Time> lost_at_;
  Duration away_{};
  Summary before_;  // Sums and means of the processes that were killed.
};

}  // namespace atl::run
