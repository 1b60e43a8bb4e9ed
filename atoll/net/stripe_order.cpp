#include "atoll/net/stripe_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace atl::net {
namespace {

/// What arrived is confirmed at the latest after so many bytes, or with the first frame after so
/// long: often enough for the window and the estimate, and not for each frame.
constexpr size_t kAckBytes = size_t{512} << 10;
constexpr Duration kAckInterval = std::chrono::milliseconds(50);

}  // namespace

StripeArrivals::StripeArrivals(size_t window_bytes)
    : window_bytes_(window_bytes), ack_bytes_(std::min(kAckBytes, window_bytes / 8)) {}

std::string StripeArrivals::take(uint64_t number, Bytes frame) {
  if (number < count_ || held_.contains(number)) {
    return fmt::format("the other side sent frame {} twice", number);
  }
  const size_t bytes = frame.size() + kStripeFrameOverhead;
  unconfirmed_bytes_ += bytes;
  held_bytes_ += bytes;
  if (held_bytes_ > window_bytes_ + kMaxFrameBytes + kStripeFrameOverhead) {
    return fmt::format("the other side sent frame {} while {} is missing", number, count_);
  }
  held_.emplace(number, std::move(frame));
  return {};
}

std::optional<Bytes> StripeArrivals::next() {
  if (held_.empty() || held_.begin()->first != count_) return std::nullopt;
  Bytes frame = std::move(held_.begin()->second);
  held_.erase(held_.begin());
  held_bytes_ -= frame.size() + kStripeFrameOverhead;
  count_ += 1;
  return frame;
}

bool StripeArrivals::is_confirmation_due(Time now) const {
  return (owes_much() || now - confirmed_at_ > kAckInterval) && count_ > num_confirmed_;
}

void StripeArrivals::confirmed(Time now) {
  unconfirmed_bytes_ = 0;
  num_confirmed_ = count_;
  confirmed_at_ = now;
}

size_t StripeFlight::sent(ConnectionId lane, size_t frame_bytes, Time now) {
  const size_t bytes = frame_bytes + kStripeFrameOverhead;
  frames_.push_back({.number = next_number_++,
                     .where = {.lane = lane, .bytes = bytes},
                     .mark = estimator_.sent(now, static_cast<int64_t>(frame_bytes))});
  bytes_ += bytes;
  return bytes;
}

std::optional<StripeFlight::Landed> StripeFlight::land(uint64_t there, Time now) {
  if (frames_.empty() || frames_.front().number >= there) return std::nullopt;
  const Frame first = frames_.front();
  estimator_.arrived(now, first.mark);
  bytes_ -= first.where.bytes;
  frames_.pop_front();
  return first.where;
}

}  // namespace atl::net
