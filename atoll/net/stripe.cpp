#include "atoll/net/stripe.h"

#include <fmt/format.h>

#include <utility>

namespace atl::net {
Sent Stripe::send(const SharedFrame& frame) {
  if (!flight.has_room_for(frame.size())) {
    refused = true;
    return Sent::kFull;
  }
  const StripeTrailer trailer{.kind = StripeKind::kData, .number = flight.next_number()};
  const Sent sent = send_on_best(frame, trailer);
  if (sent == Sent::kFull) refused = true;
  return sent;
}

Sent Stripe::send_on_best(SharedFrame frame, const StripeTrailer& trailer) {
  StripeTrailer with_news = trailer;
  with_news.arrived = arrivals.count();
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
      best->in_flight += flight.sent(best->id, frame.size(), clock.now());
    }
    arrivals.confirmed(clock.now());
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
  std::string wrong = arrivals.take(number, std::move(frame));
  if (!wrong.empty()) return wrong;
  while (auto next = arrivals.next()) events.emplace_back(Received{id, std::move(*next)});
  if (arrivals.is_confirmation_due(clock.now())) say_what_arrived();
  return {};
}

void Stripe::say_what_arrived() {
  // Where no lane has room the next frame says it, or this once there is room.
  static_cast<void>(send_on_best({}, {.kind = StripeKind::kAck}));
}

std::string Stripe::confirm(uint64_t there) {
  if (there > flight.next_number()) {
    return fmt::format("the other side has {} frames, and was sent {}", there,
                       flight.next_number());
  }
  bool is_news = false;
  while (const auto landed = flight.land(there, clock.now())) {
    if (Lane* lane = find(landed->lane)) lane->in_flight -= landed->bytes;
    is_news = true;
  }
  if (is_news) tell_writable();
  return {};
}

void Stripe::on_writable(Lane& lane) {
  lane.full = false;
  if (arrivals.owes_much()) say_what_arrived();
  tell_writable();
}

void Stripe::tell_writable() {
  const bool has_room = flight.is_low() && std::ranges::any_of(lanes, [](const Lane& lane) {
                          return lane.opened && !lane.full;
                        });
  if (!refused || !has_room || closing || over) return;
  refused = false;
  events.emplace_back(Writable{id});
}

void Stripe::fail(const std::string& reason) {
  over = true;
  arrivals.clear();
  flight.clear();
  events.emplace_back(Lost{id, reason});
  for (const Lane& lane : lanes) inner.close(lane.id);
}

}  // namespace atl::net
