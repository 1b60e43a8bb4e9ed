#pragma once
// How long an island goes on though its numbers cannot be used. The others can go on without what
// it learned in a step or brings to a round; alone, or again and again, training is over, and what
// is thrown says what to do. LibTorch-free. One owner thread.
#include <cstdint>

#include "atoll/base/event.h"
#include "atoll/collective/averager.h"
#include "atoll/method/sync_options.h"

namespace atl::run {

class Patience {
 public:
  Patience(const method::SyncOptions& sync, int num_members, EventSink events);

  /// Whether that step taught anything: both are numbers. Else the others are to go on without it,
  /// which is said. Throws InputError when it is over.
  bool can_use(int64_t step, double loss, double grad_norm);
  /// A committed round, in which this island had weight 0 if it abstained. Throws InputError when
  /// it is over: a run of rounds without this island's part is no training.
  void note_round(const collective::Commit& commit, bool abstained);
  int64_t abstained_rounds() const { return abstained_; }

 private:
  method::SyncOptions sync_;
  bool is_alone_;
  EventSink events_;
  int64_t unusable_in_a_row_ = 0;   // Steps.
  int64_t abstained_in_a_row_ = 0;  // Rounds;
  int64_t abstained_ = 0;           // in all.
};

}  // namespace atl::run
