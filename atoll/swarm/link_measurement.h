#pragma once
// The line to a coordinator, measured without joining a run: some round trips of next to nothing,
// then as much as goes through, up and down, for a few seconds each. LinkMeasurement is the state
// machine, measure_link() its shell.
//
// A new connection begins slowly: what is on its way grows with each answer, as TCP's own does, and
// the rate is that of the second half. At most 3 MiB are on their way: a line on which more would
// be is measured too slow, and it is said (`is_window_full`). One TCP connection; rounds use more.
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/net/transport.h"
#include "atoll/swarm/messages.h"

namespace atl::swarm {

struct MeasuredLink {
  double up_bits_per_s = 0;
  double down_bits_per_s = 0;
  double round_trip_s = 0;      // The shortest.
  bool is_window_full = false;  // More than 3 MiB would be on their way: the rates are too low.
};

/// Not thread-safe. Send what it returns, in order.
class LinkMeasurement {
 public:
  using Probes = std::vector<Probe>;

  Probes start(Time now);
  /// How many bytes the oldest probe without an answer asked for; nothing where all have theirs.
  std::optional<size_t> expected() const;
  /// That answer came. There is one expected.
  Probes answered(Time now);
  bool is_done() const { return phase_ == Phase::kDone; }
  /// is_done().
  const MeasuredLink& result() const { return result_; }

 private:
  enum class Phase : uint8_t { kTrips, kUp, kDown, kDone };
  struct Sent {
    Time when{};
    size_t bytes = 0;    // Up or down.
    size_t replied = 0;  // Down.
  };
  struct Arrival {
    Time when{};
    size_t bytes = 0;
  };

  Probes begin(Phase phase, Time now);
  Probes fill(Time now);
  double rate() const;

  Phase phase_ = Phase::kTrips;
  MeasuredLink result_;
  int trips_left_ = 0;
  std::deque<Sent> on_the_way_;
  size_t window_ = 0;  // Bytes that may be on their way.
  size_t bytes_on_the_way_ = 0;
  size_t bytes_sent_ = 0;  // In this phase.
  Time phase_begin_{};
  std::vector<Arrival> arrivals_;
};

/// Asks the coordinator at `address`. Fails when it cannot be reached, is no coordinator or does
/// not answer within a minute, and when `cancelled`. `clock` must outlive it.
Result<MeasuredLink> measure_link(const std::string& address,
                                  const net::TransportFactory& make_transport, const Clock& clock,
                                  const std::function<bool()>& cancelled);

}  // namespace atl::swarm
