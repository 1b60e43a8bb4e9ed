#pragma once
// How much of a member's line goes to what others have missed. Rounds come first, for all wait for
// them; but where they fill the line, a newcomer must come nearer too. Pure: time comes in.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "atoll/base/clock.h"
#include "atoll/collective/segments.h"

namespace atl::collective {

class LendingShare {
 public:
  /// While rounds wait to be sent, one byte in so many is lent.
  static constexpr int64_t kOneIn = 8;

  void sent_for_rounds(size_t bytes, Time now) {
    credit_ = std::min(credit_ + static_cast<int64_t>(bytes), kMostCredit);
    moved_ = now;
  }
  void lent(size_t bytes, Time now) {
    credit_ = std::max(credit_ - (kOneIn - 1) * static_cast<int64_t>(bytes), -kMostCredit);
    moved_ = now;
  }
  /// Whether a chunk may go now, though rounds wait; `rest` is how long it may be taken for stalled
  /// that nothing of them goes.
  bool may_lend(Time now, Duration rest) const { return credit_ > 0 || now - moved_ > rest; }

 private:
  /// Neither is saved up: a chunk, and what rounds send meanwhile.
  static constexpr auto kMostCredit = (kOneIn - 1) * static_cast<int64_t>(kMaxChunkBytes);

  int64_t credit_ = 0;  // In bytes of rounds.
  Time moved_{};
};

}  // namespace atl::collective
