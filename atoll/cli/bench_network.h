#pragma once
// How fast this machine's processor lets Atoll's transport be: both ends are here.
#include "atoll/base/clock.h"
#include "atoll/plan/machine_report.h"

namespace atl::cli {

/// Sends for `rate_time` in the clear and as long encrypted, and goes back and forth for a moment.
/// Throws InputError where this machine cannot call itself.
plan::LoopbackRates measure_loopback(Duration rate_time, const Clock& clock);

}  // namespace atl::cli
