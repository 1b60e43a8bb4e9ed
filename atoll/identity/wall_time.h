#pragma once
// The calendar's time, which certificates and invites speak of. It always comes in as an argument,
// so that expiry can be tested; clocks are read by whoever calls.
#include <chrono>
#include <cstdint>
#include <string>

namespace atl::identity {

using WallTime = std::chrono::sys_seconds;

/// Of atl::wall_time().
inline WallTime wall_time_of(double seconds_since_1970) {
  return WallTime(std::chrono::seconds(static_cast<int64_t>(seconds_since_1970)));
}

/// The last second of the year 9999, the last that certificates can name.
inline constexpr WallTime kLastWallTime{std::chrono::seconds(253402300799)};

/// "2026-01-31 12:00:00 UTC".
std::string text_of(WallTime time);

}  // namespace atl::identity
