#pragma once
// How quickly other servers' blobs come here, by who sends them: bytes over the time that they were
// waited for, of which the newest count most.
#include <algorithm>
#include <chrono>
#include <map>
#include <string>

#include "atoll/base/clock.h"

namespace atl::serve {

class FetchRates {
 public:
  /// What was measured longer ago says nothing of now.
  static constexpr Duration kLongest = std::chrono::seconds(20);

  /// An answer of so many bytes that came as long after it was asked for, or after the last answer.
  void note(const std::string& holder, double bytes, Duration took, Time now) {
    if (rates_.size() >= kMost && !rates_.contains(holder)) rates_.clear();
    Rate& rate = rates_[holder];
    if (now - rate.newest > kLongest) rate = {};
    rate.bytes = kOlder * rate.bytes + bytes;
    rate.seconds = kOlder * rate.seconds + std::max(seconds(took), 1e-6);
    rate.newest = now;
  }
  /// Bytes a second; 0: not known.
  double of(const std::string& holder, Time now) const {
    const auto found = rates_.find(holder);
    if (found == rates_.end() || now - found->second.newest > kLongest) return 0;
    return found->second.bytes / found->second.seconds;
  }

 private:
  struct Rate {
    double bytes = 0;
    double seconds = 0;
    Time newest{};
  };
  static constexpr double kOlder = 0.7;
  static constexpr size_t kMost = 256;

  std::map<std::string, Rate> rates_;
};

}  // namespace atl::serve
