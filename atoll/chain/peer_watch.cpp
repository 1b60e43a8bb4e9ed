#include "atoll/chain/peer_watch.h"

#include <algorithm>

namespace atl::chain {
namespace {

constexpr size_t kMostUnanswered = 256;
constexpr double kManyTimes = 16;

}  // namespace

Ping PeerWatch::ping(Time now) {
  next_ping_ = now + kPingInterval;
  ++number_;
  if (unanswered_.size() < kMostUnanswered) unanswered_.emplace_back(number_, now);
  return {number_};
}

void PeerWatch::hear(const Pong& pong, Time now) {
  if (last_.pass_ms > 0 && pong.num_passes != last_.num_passes) {
    usual_pass_ms_ += (last_.pass_ms - usual_pass_ms_) / 8;
  }
  last_ = pong;
  while (!unanswered_.empty() && unanswered_.front().first <= pong.number) {
    const auto [number, sent] = unanswered_.front();
    unanswered_.pop_front();
    if (number != pong.number) continue;
    const Duration took = now - sent;
    if (smoothed_ == Duration{}) {
      smoothed_ = took;
      deviation_ = took / 2;
    } else {
      const Duration off = took > smoothed_ ? took - smoothed_ : smoothed_ - took;
      deviation_ += (off - deviation_) / 4;
      smoothed_ += (took - smoothed_) / 8;
    }
  }
}

Duration PeerWatch::patience() const {
  return std::max<Duration>(kLeastPatience, 2 * smoothed_ + 8 * deviation_);
}

bool PeerWatch::hangs(Time now) const {
  if (!unanswered_.empty() && now - unanswered_.front().second > patience()) return true;
  const Duration known = usual_pass_ms_ > 0 ? kLeastPass : kUnknownPass;
  const auto least =
      static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(known).count());
  return last_.pass_ms > std::max(least, kManyTimes * usual_pass_ms_);
}

}  // namespace atl::chain
