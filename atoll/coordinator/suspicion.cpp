#include "atoll/coordinator/suspicion.h"

#include <algorithm>
#include <cmath>

namespace atl::swarm {
namespace {

constexpr double kMeanGain = 1.0 / 8;  // RFC 6298, as is kRise.
constexpr double kRise = 1.0 / 4;
constexpr double kFall = 1.0 / 80;  // A peer that was irregular once will be again.
constexpr double kDeviations = 6;   // 4 there; here a false alarm costs a round.

}  // namespace

Suspicion::Suspicion(SuspicionOptions options, Time now)
    : options_(options),
      last_(now),
      mean_(seconds(options.expected)),
      deviation_(seconds(options.expected) / 2) {}

void Suspicion::heard(Time now) {
  // A peer that was away says little of how regular it is when it is there.
  const double pause = std::min(seconds(now - last_), seconds(patience()));
  const double distance = std::abs(pause - mean_);
  deviation_ += (distance > deviation_ ? kRise : kFall) * (distance - deviation_);
  mean_ += kMeanGain * (pause - mean_);
  last_ = now;
}

Duration Suspicion::patience() const {
  return std::clamp(duration_of(mean_ + kDeviations * deviation_), options_.least, options_.most);
}

}  // namespace atl::swarm
