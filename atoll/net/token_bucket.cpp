#include "atoll/net/token_bucket.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"

namespace atl::net {

TokenBucket::TokenBucket(double bytes_per_second, double burst_bytes, Time now)
    : bytes_per_second_(bytes_per_second),
      burst_bytes_(burst_bytes),
      level_bytes_(burst_bytes),
      updated_(now) {
  ATOLL_CHECK(bytes_per_second > 0 && burst_bytes >= 0);
}

double TokenBucket::level_at(Time now) const {
  const double gained = seconds(std::max(now - updated_, Duration{})) * bytes_per_second_;
  return std::min(burst_bytes_, level_bytes_ + gained);
}

Duration TokenBucket::wait(Time now, double overdraft_bytes) const {
  const double missing = -overdraft_bytes - level_at(now);
  if (missing <= 0) return Duration{};
  return Duration(static_cast<int64_t>(std::ceil(missing / bytes_per_second_ * 1e9)));
}

void TokenBucket::take(Time now, int64_t bytes) {
  level_bytes_ = level_at(now) - static_cast<double>(bytes);
  updated_ = std::max(updated_, now);
}

void TokenBucket::give_back(Time now, int64_t bytes) {
  take(now, -bytes);
  level_bytes_ = std::min(level_bytes_, burst_bytes_);
}

}  // namespace atl::net
