#pragma once
// The one model of a line: what it is given leaves in order, each piece for as long as its bits
// take at the line's rate; when it arrives is the caller's to say (a latency later). The simulated
// network counts in nanoseconds, the models of atoll/laws in seconds.
#include <algorithm>

namespace atl::sim {

template <typename Moment, typename Span>
struct Line {
  Moment control_free{};  // When the last control frame has left.
  Moment bulk_free{};     // When everything has left.

  /// Sends bulk that is there at `ready`; the moment at which its last bit leaves.
  Moment send_bulk(Moment ready, Span sending) {
    bulk_free = std::max(ready, bulk_free) + sending;
    return bulk_free;
  }

  /// A control frame goes ahead of bulk that waits, and delays it by its own time.
  Moment send_control(Moment ready, Span sending) {
    const Moment start = std::max(ready, control_free);
    control_free = start + sending;
    bulk_free = std::max(bulk_free, start) + sending;
    return control_free;
  }
};

}  // namespace atl::sim
