#pragma once
// The two directions of a bulk connection that goes over several lanes (stripe.h), apart from the
// lanes: what came and waits for its turn, and what is on its way until the other side has it.
// Pure: frames and time go in. Private to atoll/net. Not thread-safe.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "atoll/base/bytes.h"
#include "atoll/base/clock.h"
#include "atoll/net/link_estimate.h"
#include "atoll/net/transport.h"

namespace atl::net {

/// Counted for each frame that is on its way or held, beside its bytes.
constexpr size_t kStripeFrameOverhead = 256;

/// Frames that came, in the order in which they were sent, and which of them to confirm. Invariant:
/// what is held is behind a gap once next() gives nothing.
class StripeArrivals {
 public:
  explicit StripeArrivals(size_t window_bytes);

  /// What is wrong with the frame; empty if nothing.
  std::string take(uint64_t number, Bytes frame);
  /// The next one whose turn it is.
  std::optional<Bytes> next();
  /// Without a gap.
  uint64_t count() const { return count_; }
  bool has_gap() const { return !held_.empty(); }
  /// Much came since the other side was told;
  bool owes_much() const { return unconfirmed_bytes_ > ack_bytes_; }
  /// it is to be told now.
  bool is_confirmation_due(Time now) const;
  /// count() was told.
  void confirmed(Time now);
  /// What is held is of no use any more.
  void clear() { held_.clear(); }

 private:
  size_t window_bytes_;
  size_t ack_bytes_;
  uint64_t count_ = 0;
  std::map<uint64_t, Bytes> held_;  // Before their turn.
  size_t held_bytes_ = 0;
  size_t unconfirmed_bytes_ = 0;
  uint64_t num_confirmed_ = 0;
  Time confirmed_at_{};
};

/// Frames that were sent and not confirmed, within a window, and what that says of the line.
class StripeFlight {
 public:
  /// What a lane had on its way, and the other side has.
  struct Landed {
    ConnectionId lane = 0;
    size_t bytes = 0;
  };

  explicit StripeFlight(size_t window_bytes) : window_bytes_(window_bytes) {}

  bool has_room_for(size_t frame_bytes) const {
    return bytes_ == 0 || bytes_ + frame_bytes + kStripeFrameOverhead <= window_bytes_;
  }
  /// There is room for quite some.
  bool is_low() const { return bytes_ <= window_bytes_ / 4 * 3; }
  /// Of the frame that is sent next.
  uint64_t next_number() const { return next_number_; }
  /// It went over that lane. The bytes that it counts there.
  size_t sent(ConnectionId lane, size_t frame_bytes, Time now);
  /// The oldest that is on its way, if the other side, which has so many, has it.
  std::optional<Landed> land(uint64_t there, Time now);
  LinkEstimate estimate() const { return estimator_.estimate(); }
  void clear() { frames_.clear(); }

 private:
  struct Frame {
    uint64_t number = 0;
    Landed where;
    LinkEstimator::Mark mark;
  };

  size_t window_bytes_;
  uint64_t next_number_ = 0;
  std::deque<Frame> frames_;
  size_t bytes_ = 0;
  LinkEstimator estimator_;
};

}  // namespace atl::net
