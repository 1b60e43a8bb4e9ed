#include "atoll/net/stripe.h"

#include <fmt/format.h>

#include <utility>

namespace atl::net {
namespace {

/// What arrived is confirmed at the latest after so many bytes, or with the first frame after so
/// long: often enough for the window and the estimate, and not for each frame.
constexpr size_t kAckBytes = size_t{512} << 10;
constexpr Duration kAckInterval = std::chrono::milliseconds(50);
/// Counted for each frame that is in flight or held, beside its bytes.
constexpr size_t kFrameOverhead = 256;

}  // namespace

size_t Stripe::ack_bytes() const { return std::min(kAckBytes, window_bytes / 8); }

Sent Stripe::send(const SharedFrame& frame) {
  const size_t bytes = frame.size() + kFrameOverhead;
  if (in_flight_bytes > 0 && in_flight_bytes + bytes > window_bytes) {
    refused = true;
    return Sent::kFull;
  }
  const StripeTrailer trailer{.kind = StripeKind::kData, .number = next_number};
  const Sent sent = send_on_best(frame, trailer);
  if (sent == Sent::kFull) refused = true;
  return sent;
}

Sent Stripe::send_on_best(SharedFrame frame, const StripeTrailer& trailer) {
  StripeTrailer with_news = trailer;
  with_news.arrived = num_arrived;
  frame.tail = encode(with_news);
  while (true) {
    Lane* best = nullptr;
    for (Lane& lane : lanes) {
      const bool is_usable = !lane.full && (lane.opened || lane.id == id);
      if (is_usable && (best == nullptr || lane.in_flight < best->in_flight)) best = &lane;
    }
    if (best == nullptr) return Sent::kFull;
    const Sent sent = inner.send_shared(best->id, frame);
    if (sent == Sent::kClosed) return sent;  // Lost follows.
    best->full = sent == Sent::kFull;
    if (best->full) continue;
    if (trailer.kind == StripeKind::kData) {
      const size_t bytes = frame.size() + kFrameOverhead;
      next_number += 1;
      in_flight_bytes += bytes;
      best->in_flight += bytes;
      const auto size = static_cast<int64_t>(frame.size());
      in_flight.push_back({.number = trailer.number,
                           .bytes = bytes,
                           .lane = best->id,
                           .mark = estimator.sent(clock.now(), size)});
    }
    unconfirmed_bytes = 0;
    num_confirmed = num_arrived;
    confirmed_at = clock.now();
    return Sent::kAccepted;
  }
}

void Stripe::send_token(ConnectionId lane, StripeKind kind) {
  const SharedFrame frame{.head = Bytes(token.begin(), token.end()),
                          .tail = encode(StripeTrailer{.kind = kind})};
  // If there is no room for it the lane is of no use: the other side would not know whose it is.
  if (inner.send_shared(lane, frame) == Sent::kFull) inner.close(lane);
}

std::string Stripe::take_data(uint64_t number, Bytes frame) {
  if (number < num_arrived || held.contains(number)) {
    return fmt::format("the other side sent frame {} twice", number);
  }
  unconfirmed_bytes += frame.size() + kFrameOverhead;
  held_bytes += frame.size() + kFrameOverhead;
  if (held_bytes > window_bytes + kMaxFrameBytes + kFrameOverhead) {
    return fmt::format("the other side sent frame {} while {} is missing", number, num_arrived);
  }
  held.emplace(number, std::move(frame));
  while (!held.empty() && held.begin()->first == num_arrived) {
    Bytes next = std::move(held.begin()->second);
    held.erase(held.begin());
    held_bytes -= next.size() + kFrameOverhead;
    num_arrived += 1;
    events.emplace_back(Received{id, std::move(next)});
  }
  const bool is_due = unconfirmed_bytes > ack_bytes() || clock.now() - confirmed_at > kAckInterval;
  if (is_due && num_arrived > num_confirmed) say_what_arrived();
  return {};
}

void Stripe::say_what_arrived() {
  // Where no lane has room the next frame says it, or this once there is room.
  static_cast<void>(send_on_best({}, {.kind = StripeKind::kAck}));
}

std::string Stripe::confirm(uint64_t there) {
  if (there > next_number) {
    return fmt::format("the other side has {} frames, and was sent {}", there, next_number);
  }
  bool is_news = false;
  while (!in_flight.empty() && in_flight.front().number < there) {
    const InFlight& first = in_flight.front();
    estimator.arrived(clock.now(), first.mark);
    in_flight_bytes -= first.bytes;
    if (Lane* lane = find(first.lane)) lane->in_flight -= first.bytes;
    in_flight.pop_front();
    is_news = true;
  }
  if (is_news) tell_writable();
  return {};
}

void Stripe::on_writable(Lane& lane) {
  lane.full = false;
  if (unconfirmed_bytes > ack_bytes()) say_what_arrived();
  tell_writable();
}

void Stripe::tell_writable() {
  const bool has_room =
      in_flight_bytes <= window_bytes / 4 * 3 &&
      std::ranges::any_of(lanes, [](const Lane& lane) { return lane.opened && !lane.full; });
  if (!refused || !has_room || closing || over) return;
  refused = false;
  events.emplace_back(Writable{id});
}

void Stripe::fail(const std::string& reason) {
  over = true;
  held.clear();
  in_flight.clear();
  events.emplace_back(Lost{id, reason});
  for (const Lane& lane : lanes) inner.close(lane.id);
}

}  // namespace atl::net
