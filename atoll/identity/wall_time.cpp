#include "atoll/identity/wall_time.h"

#include <fmt/chrono.h>

namespace atl::identity {

std::string text_of(WallTime time) {
  if (time > kLastWallTime || time < -kLastWallTime.time_since_epoch() + WallTime()) {
    return "a time out of all calendars";
  }
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(time.time_since_epoch().count()));
}

}  // namespace atl::identity
