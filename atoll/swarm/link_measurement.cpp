#include "atoll/swarm/link_measurement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/swarm/inbox.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {
namespace {

constexpr int kTrips = 7;
constexpr size_t kFirstWindow = size_t{16} << 10;
constexpr size_t kMaxWindow = size_t{3} << 20;  // Under what a connection queues.
constexpr size_t kMinChunk = size_t{2} << 10;
constexpr size_t kMaxPhaseBytes = size_t{32} << 20;  // Two phases are what a coordinator bears.
constexpr Duration kPhase = std::chrono::seconds(3);
/// What takes longer says enough of the line: no more need be on its way.
constexpr Duration kLongTrip = std::chrono::seconds(1);
/// Of what the largest window can carry: from here on it was the window that bounded the rate.
constexpr double kFull = 0.95;

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr Duration kNap = std::chrono::milliseconds(100);
constexpr size_t kMaxQueuedBytes = size_t{64} << 20;

}  // namespace

LinkMeasurement::Probes LinkMeasurement::start(Time now) {
  trips_left_ = kTrips;
  on_the_way_.push_back({now});
  return {Probe{}};
}

std::optional<size_t> LinkMeasurement::expected() const {
  if (on_the_way_.empty()) return std::nullopt;
  return on_the_way_.front().replied;
}

LinkMeasurement::Probes LinkMeasurement::answered(Time now) {
  ATOLL_CHECK(!on_the_way_.empty());
  const Sent sent = on_the_way_.front();
  on_the_way_.pop_front();
  bytes_on_the_way_ -= sent.bytes;
  const Duration took = now - sent.when;
  if (phase_ == Phase::kTrips) {
    // The first may have waited for the connection.
    const bool is_first = trips_left_ == kTrips;
    const double trip = std::max(seconds(took), 1e-9);
    result_.round_trip_s =
        is_first || trips_left_ == kTrips - 1 ? trip : std::min(result_.round_trip_s, trip);
    if (--trips_left_ == 0) return begin(Phase::kUp, now);
    on_the_way_.push_back({now});
    return {Probe{}};
  }
  arrivals_.push_back({now, sent.bytes});
  if (took < kLongTrip) window_ = std::min(kMaxWindow, window_ + sent.bytes);
  return fill(now);
}

LinkMeasurement::Probes LinkMeasurement::begin(Phase phase, Time now) {
  phase_ = phase;
  phase_begin_ = now;
  window_ = kFirstWindow;
  bytes_sent_ = 0;
  arrivals_.clear();
  if (phase == Phase::kDone) return {};
  return fill(now);
}

LinkMeasurement::Probes LinkMeasurement::fill(Time now) {
  const bool is_over = now - phase_begin_ >= kPhase || bytes_sent_ >= kMaxPhaseBytes;
  if (is_over && on_the_way_.empty()) {
    const double bits_per_s = rate();
    // A window's worth in a round trip is all that can be.
    const double most = 8 * static_cast<double>(kMaxWindow) / result_.round_trip_s;
    if (window_ == kMaxWindow && bits_per_s > kFull * most) result_.is_window_full = true;
    const bool was_up = phase_ == Phase::kUp;
    (was_up ? result_.up_bits_per_s : result_.down_bits_per_s) = bits_per_s;
    return begin(was_up ? Phase::kDown : Phase::kDone, now);
  }
  Probes probes;
  const size_t chunk = std::clamp(window_ / 8, kMinChunk, size_t{kMaxProbeBytes});
  while (!is_over && bytes_on_the_way_ + chunk <= window_) {
    Probe probe;
    if (phase_ == Phase::kUp) {
      probe.data.resize(chunk);
    } else {
      probe.reply_bytes = chunk;
    }
    probes.push_back(std::move(probe));
    on_the_way_.push_back({now, chunk, phase_ == Phase::kUp ? 0 : chunk});
    bytes_on_the_way_ += chunk;
    bytes_sent_ += chunk;
  }
  return probes;
}

/// Of what arrived after half of the time, which is when the window is as large as it gets.
double LinkMeasurement::rate() const {
  const Time end = arrivals_.back().when;
  const Time half = phase_begin_ + (end - phase_begin_) / 2;
  auto first = std::ranges::find_if(arrivals_, [&](const Arrival& a) { return a.when >= half; });
  double bytes = 0;
  for (auto it = first + 1; it != arrivals_.end(); ++it) bytes += static_cast<double>(it->bytes);
  Time begin = first->when;
  if (bytes == 0) {  // A few arrivals at once: all of the time counts.
    for (const Arrival& arrival : arrivals_) bytes += static_cast<double>(arrival.bytes);
    begin = phase_begin_;
  }
  return 8 * bytes / std::max(seconds(end - begin), 1e-9);
}

Result<MeasuredLink> measure_link(const std::string& address,
                                  const net::TransportFactory& make_transport, const Clock& clock,
                                  const std::function<bool()>& cancelled) {
  Inbox<net::Event> inbox(kMaxQueuedBytes);
  const auto transport = make_transport([&](net::Event event) {
    const size_t size = net::frame_bytes(event);
    inbox.push(std::move(event), size);
  });
  LinkMeasurement measurement;
  const auto connection = transport->connect(address, net::Plane::kControl);
  const Time deadline = clock.now() + kPatience;
  const auto send = [&](const LinkMeasurement::Probes& probes) {
    return std::ranges::all_of(probes, [&](const Probe& probe) {
      return transport->send(connection, encode(probe)) == net::Sent::kAccepted;
    });
  };
  while (!measurement.is_done()) {
    if (cancelled()) return failure("interrupted");
    if (clock.now() >= deadline) {
      return failure(fmt::format("{} does not answer as a coordinator does", address));
    }
    const auto event = inbox.pop(kNap);
    if (!event) continue;
    bool is_sent = true;
    if (std::holds_alternative<net::Opened>(*event)) {
      is_sent = send(measurement.start(clock.now()));
    } else if (const auto* received = std::get_if<net::Received>(&*event)) {
      Message message;
      try {
        message = decode(received->frame);
      } catch (const InputError& error) {
        return failure(
            fmt::format("{} is no coordinator of this version: {}", address, error.what()));
      }
      if (const auto* refused = std::get_if<Refused>(&message)) {
        return failure(fmt::format("the coordinator at {} refused: {}", address, refused->reason));
      }
      const auto* reply = std::get_if<ProbeReply>(&message);
      if (reply == nullptr || measurement.expected() != reply->data.size()) {
        return failure(
            fmt::format("{} sent a {} that was not asked for", address, kind_name(message)));
      }
      is_sent = send(measurement.answered(clock.now()));
    } else if (const auto* lost = std::get_if<net::Lost>(&*event)) {
      return failure(
          fmt::format("the coordinator at {} cannot be measured: {}", address, lost->reason));
    }
    if (!is_sent) return failure(fmt::format("the line to {} is full", address));
  }
  transport->close(connection);
  return measurement.result();
}

}  // namespace atl::swarm
