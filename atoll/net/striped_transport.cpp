#include "atoll/net/striped_transport.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/mutex.h"
#include "atoll/net/stripe.h"

namespace atl::net {
namespace {

constexpr double kSlowBytesPerSecond = 64e3;
constexpr double kSecondsPerLane = 0.03;
/// A lane that does not say whose it is.
constexpr Duration kMuteLanePatience = std::chrono::seconds(10);

StripeToken make_token() {
  StripeToken token;
  ATOLL_CHECK(::getrandom(token.data(), token.size(), 0) == std::ssize(token));
  return token;
}

std::optional<identity::PeerId> peer_of(const Opened& opened) {
  return opened.certificate ? std::optional(opened.certificate->peer) : std::nullopt;
}

class StripedTransport final : public Transport {
 public:
  StripedTransport(StripeOptions options, const TransportFactory& make_inner, const Clock& clock,
                   Sink sink)
      : options_(std::move(options)), clock_(clock), sink_(std::move(sink)) {
    inner_ = make_inner([this](Event event) { handle(std::move(event)); });
  }

  Result<std::string> listen(const std::string& address) override {
    return inner_->listen(address);
  }
  ConnectionId connect(const std::string& address, Plane plane) override {
    return connect_as("", address, plane);
  }
  ConnectionId connect_as(const std::string& run, const std::string& address, Plane plane) override;
  ConnectionId meet(const Meeting& meeting, Plane plane) override;
  Sent send(ConnectionId connection, Bytes frame) override;
  Sent send_shared(ConnectionId connection, SharedFrame frame) override;
  void close(ConnectionId connection) override;
  Traffic traffic() const override { return inner_->traffic(); }
  LinkEstimate estimate(ConnectionId connection) const override;

 private:
  using StripePtr = std::shared_ptr<Stripe>;

  void handle(Event event);
  void handle_lane(const StripePtr& stripe, ConnectionId lane, Event event);
  /// Of a bulk connection that this side asks for: its first lane is made.
  ConnectionId begin(const StripePtr& stripe, const std::function<ConnectionId()>& make_lane);
  void on_opened(Opened opened);
  void on_stranger(ConnectionId lane, Event event);
  void join(ConnectionId lane, Bytes frame);
  void on_lost(const StripePtr& stripe, Lost lost) ATOLL_REQUIRES(stripe->mutex);
  void emit_events(Stripe& stripe);
  StripePtr find(ConnectionId lane) const;
  StripePtr make_stripe() const {
    return std::make_shared<Stripe>(options_.window_bytes, clock_, *inner_);
  }
  void on_frame(const StripePtr& stripe, Bytes frame) ATOLL_REQUIRES(stripe->mutex);
  void add_lanes(const StripePtr& stripe) ATOLL_REQUIRES(stripe->mutex);

  const StripeOptions options_;
  const Clock& clock_;
  const Sink sink_;

  mutable Mutex mutex_;  // No stripe is locked while it is held.
  std::map<ConnectionId, StripePtr> by_lane_ ATOLL_GUARDED_BY(mutex_);
  std::map<StripeToken, std::weak_ptr<Stripe>> by_token_ ATOLL_GUARDED_BY(mutex_);
  struct MuteLane {
    Time since;
    std::optional<identity::PeerId> peer;
  };
  /// Inbound ones that have not said whose they are.
  std::map<ConnectionId, MuteLane> mute_lanes_ ATOLL_GUARDED_BY(mutex_);
  std::unique_ptr<Transport> inner_;  // Goes first: its last events need the rest.
};

ConnectionId StripedTransport::connect_as(const std::string& run, const std::string& address,
                                          Plane plane) {
  if (plane != Plane::kBulk) return inner_->connect_as(run, address, plane);
  auto stripe = make_stripe();
  stripe->calls = true;
  stripe->address = address;
  stripe->run = run;
  return begin(stripe, [&] { return inner_->connect_as(run, address, plane); });
}

ConnectionId StripedTransport::meet(const Meeting& meeting, Plane plane) {
  if (plane != Plane::kBulk) return inner_->meet(meeting, plane);
  auto stripe = make_stripe();
  stripe->calls = meeting.calls;
  return begin(stripe, [&] { return inner_->meet(meeting, plane); });
}

ConnectionId StripedTransport::begin(const StripePtr& stripe,
                                     const std::function<ConnectionId()>& make_lane) {
  const MutexLock stripe_lock(stripe->mutex);
  if (stripe->calls) stripe->token = make_token();
  const MutexLock lock(mutex_);  // Before its first event can be looked at.
  stripe->id = make_lane();
  stripe->lanes.push_back({.id = stripe->id});
  by_lane_[stripe->id] = stripe;
  return stripe->id;
}

Sent StripedTransport::send(ConnectionId connection, Bytes frame) {
  ATOLL_CHECK(frame.size() <= kMaxFrameBytes, "the frame is too long");
  if (find(connection) == nullptr) return inner_->send(connection, std::move(frame));
  const size_t size = frame.size();
  return send_shared(
      connection,
      {.blob = std::make_shared<const Bytes>(std::move(frame)), .begin = 0, .num_bytes = size});
}

Sent StripedTransport::send_shared(ConnectionId connection, SharedFrame frame) {
  ATOLL_CHECK(frame.size() <= kMaxFrameBytes, "the frame is too long");
  const StripePtr stripe = find(connection);
  if (stripe == nullptr) return inner_->send_shared(connection, std::move(frame));
  const MutexLock lock(stripe->mutex);
  return stripe->over || stripe->closing ? Sent::kClosed : stripe->send(frame);
}

void StripedTransport::close(ConnectionId connection) {
  const StripePtr stripe = find(connection);
  if (stripe == nullptr) return inner_->close(connection);
  const MutexLock lock(stripe->mutex);
  stripe->closing = true;
  for (const Stripe::Lane& lane : stripe->lanes) inner_->close(lane.id);
}

LinkEstimate StripedTransport::estimate(ConnectionId connection) const {
  const StripePtr stripe = find(connection);
  if (stripe == nullptr) return {};
  const MutexLock lock(stripe->mutex);
  return stripe->flight.estimate();
}

StripedTransport::StripePtr StripedTransport::find(ConnectionId lane) const {
  const MutexLock lock(mutex_);
  const auto found = by_lane_.find(lane);
  return found == by_lane_.end() ? nullptr : found->second;
}

void StripedTransport::handle(Event event) {
  const auto lane = std::visit([](const auto& any) { return any.connection; }, event);
  if (const StripePtr stripe = find(lane)) return handle_lane(stripe, lane, std::move(event));
  bool is_mute = false;
  {
    const MutexLock lock(mutex_);
    is_mute = mute_lanes_.contains(lane);
  }
  auto* const opened = std::get_if<Opened>(&event);
  if (is_mute) {
    on_stranger(lane, std::move(event));
  } else if (opened != nullptr &&
             (opened->plane == Plane::kBulk || opened->plane == Plane::kLane)) {
    on_opened(std::move(*opened));
  } else {
    sink_(std::move(event));
  }
}

void StripedTransport::on_opened(Opened opened) {
  if (!opened.inbound) return inner_->close(opened.connection);  // Of a stripe that is over.
  if (opened.plane == Plane::kBulk) {
    auto stripe = make_stripe();
    stripe->id = opened.connection;
    {
      const MutexLock stripe_lock(stripe->mutex);
      stripe->opened = true;
      stripe->peer = peer_of(opened);
      stripe->lanes.push_back({.id = stripe->id, .opened = true});
      stripe->events.emplace_back(std::move(opened));
      const MutexLock lock(mutex_);
      by_lane_[stripe->id] = stripe;
    }
    return emit_events(*stripe);
  }
  const Time now = clock_.now();
  std::vector<ConnectionId> too_late;
  {
    const MutexLock lock(mutex_);
    for (const auto& [lane, mute] : mute_lanes_) {
      if (now - mute.since > kMuteLanePatience) too_late.push_back(lane);
    }
    mute_lanes_[opened.connection] = {now, peer_of(opened)};
  }
  for (const ConnectionId lane : too_late) inner_->close(lane);
}

void StripedTransport::on_stranger(ConnectionId lane, Event event) {
  if (std::holds_alternative<Lost>(event)) {
    const MutexLock lock(mutex_);
    mute_lanes_.erase(lane);
  } else if (auto* received = std::get_if<Received>(&event)) {
    join(lane, std::move(received->frame));
  }
}

void StripedTransport::join(ConnectionId lane, Bytes frame) {
  const auto trailer = take_trailer(frame);
  const auto token = read_token(frame);
  StripePtr stripe;
  std::optional<identity::PeerId> peer;
  if (trailer && token && trailer->kind == StripeKind::kJoin) {
    const MutexLock lock(mutex_);
    peer = mute_lanes_.at(lane).peer;
    const auto found = by_token_.find(*token);
    if (found != by_token_.end()) stripe = found->second.lock();
  }
  if (stripe == nullptr) return inner_->close(lane);
  const MutexLock stripe_lock(stripe->mutex);
  // A token may have been overheard by another member, at whose address a lane came out.
  if (stripe->over || stripe->closing || stripe->lanes.size() >= kMaxLanes ||
      stripe->peer != peer) {
    return inner_->close(lane);
  }
  stripe->lanes.push_back({.id = lane, .opened = true});
  const MutexLock lock(mutex_);
  mute_lanes_.erase(lane);
  by_lane_[lane] = stripe;
}

void StripedTransport::handle_lane(const StripePtr& stripe, ConnectionId id, Event event) {
  {
    const MutexLock lock(stripe->mutex);
    Stripe::Lane* const lane = stripe->find(id);
    if (auto* opened = std::get_if<Opened>(&event); opened != nullptr && lane != nullptr) {
      const bool is_first = !std::exchange(stripe->opened, true);
      if (is_first) stripe->peer = peer_of(*opened);
      if (stripe->peer != peer_of(*opened)) return inner_->close(id);
      lane->opened = true;
      if (!stripe->closing && !stripe->over) {
        if (stripe->calls)
          stripe->send_token(id, is_first ? StripeKind::kToken : StripeKind::kJoin);
        if (is_first) stripe->events.emplace_back(std::move(*opened));
        stripe->tell_writable();
      }
    } else if (auto* received = std::get_if<Received>(&event)) {
      if (!stripe->over && !stripe->closing) on_frame(stripe, std::move(received->frame));
    } else if (std::holds_alternative<Writable>(event) && lane != nullptr) {
      stripe->on_writable(*lane);
    } else if (auto* lost = std::get_if<Lost>(&event)) {
      on_lost(stripe, std::move(*lost));
    }
  }
  emit_events(*stripe);
}

void StripedTransport::on_lost(const StripePtr& stripe, Lost lost) {
  {
    const MutexLock lock(mutex_);
    by_lane_.erase(lost.connection);
  }
  Stripe::Lane* const lane = stripe->find(lost.connection);
  if (lane == nullptr || stripe->over) return;
  const bool was_open = lane->opened;
  const bool is_first = lost.connection == stripe->id;
  std::erase_if(stripe->lanes, [&](const auto& other) { return other.id == lost.connection; });
  if (is_first) stripe->first_reason = lost.reason;
  if (!is_first && !was_open && !stripe->closing) {
    stripe->lanes_refused = true;  // It does without.
  } else if (stripe->lanes.empty()) {
    const bool all_arrived = lost.all_arrived && !stripe->arrivals.has_gap();
    stripe->over = true;
    stripe->events.emplace_back(Lost{stripe->id, stripe->first_reason, all_arrived});
  } else if (!lost.all_arrived && !stripe->closing) {
    stripe->fail(lost.reason);
  }
}

void StripedTransport::emit_events(Stripe& stripe) {
  MutexLock lock(stripe.mutex);
  if (stripe.emitting) return;  // Another thread does, in order.
  stripe.emitting = true;
  while (!stripe.events.empty()) {
    Event event = std::move(stripe.events.front());
    stripe.events.pop_front();
    lock.unlock();
    sink_(std::move(event));
    lock.lock();
  }
  stripe.emitting = false;
}

void StripedTransport::on_frame(const StripePtr& stripe, Bytes frame) {
  const auto trailer = take_trailer(frame);
  std::string wrong;
  if (!trailer) {
    wrong = "the other side sent what is no frame of a bulk connection";
  } else if (trailer->kind == StripeKind::kToken) {
    const auto token = read_token(frame);
    const bool is_expected = token && !stripe->calls && stripe->token == StripeToken{};
    if (is_expected) {
      stripe->token = *token;
      const MutexLock lock(mutex_);
      std::erase_if(by_token_, [](const auto& entry) { return entry.second.expired(); });
      by_token_.emplace(*token, stripe);
    } else {
      wrong = "the other side named the connection twice";
    }
  } else if (trailer->kind == StripeKind::kJoin) {
    wrong = "the other side joined a connection to itself";
  } else {
    wrong = stripe->confirm(trailer->arrived);
    if (wrong.empty()) add_lanes(stripe);
    if (wrong.empty() && trailer->kind == StripeKind::kData) {
      wrong = stripe->take_data(trailer->number, std::move(frame));
    }
  }
  if (!wrong.empty()) stripe->fail(wrong);
}

void StripedTransport::add_lanes(const StripePtr& stripe) {
  if (stripe->address.empty() || stripe->lanes_refused || stripe->over) return;
  const int wanted = std::min(options_.num_lanes(stripe->flight.estimate()), kMaxLanes);
  while (std::cmp_less(stripe->lanes.size(), wanted)) {
    const MutexLock lock(mutex_);  // Before its first event can be looked at.
    const ConnectionId lane = inner_->connect_as(stripe->run, stripe->address, Plane::kLane);
    stripe->lanes.push_back({.id = lane});
    by_lane_[lane] = stripe;
  }
}

}  // namespace

int num_lanes(const LinkEstimate& estimate) {
  if (estimate.bytes_per_second < kSlowBytesPerSecond) return 1;
  const double lanes = std::ceil(seconds(estimate.round_trip) / kSecondsPerLane);
  return static_cast<int>(std::clamp(lanes, 1.0, static_cast<double>(kMaxLanes)));
}

std::unique_ptr<Transport> make_striped_transport(StripeOptions options,
                                                  const TransportFactory& make_inner,
                                                  const Clock& clock, Transport::Sink sink) {
  return std::make_unique<StripedTransport>(std::move(options), make_inner, clock, std::move(sink));
}

}  // namespace atl::net
