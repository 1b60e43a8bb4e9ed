#pragma once
// Whether a member's coordinator is there, and for how long it was not. Pure.
//
// It is *lost* from when its connection broke until it has taken the member back: a connection that
// stands again is not enough. What is said to it meanwhile is lost.
#include <string>

#include "atoll/base/clock.h"

namespace atl::swarm {

class Contact {
 public:
  /// The connection stands.
  void connect(Time now) {
    is_connected_ = true;
    heard_ = now;
  }
  /// Resume was said: nothing else is, before it is answered.
  void resume() { is_resuming_ = true; }
  /// The coordinator has taken the member back, or a guest in.
  void restore() {
    is_resuming_ = false;
    lost_.clear();
  }
  void hear(Time now) { heard_ = now; }
  void lose(const std::string& reason, Time now) {
    if (lost_.empty()) {
      lost_ = reason;
      lost_at_ = now;
    }
    is_connected_ = false;
    is_resuming_ = false;
  }

  bool is_connected() const { return is_connected_; }
  bool is_resuming() const { return is_resuming_; }
  /// What is said arrives.
  bool is_open() const { return is_connected_ && !is_resuming_; }
  Time heard() const { return heard_; }
  /// Nothing was heard for longer than that.
  bool is_silent(Time now, Duration timeout) const { return now - heard_ > timeout; }
  /// It was away for longer than that.
  bool is_lost_for(Duration patience, Time now) const {
    return !lost_.empty() && now - lost_at_ > patience;
  }
  /// Why it was lost.
  const std::string& lost() const { return lost_; }
  Time lost_at() const { return lost_at_; }

 private:
  bool is_connected_ = false;
  bool is_resuming_ = false;
  std::string lost_;  // Empty: it is not.
  Time lost_at_{};
  Time heard_{};
};

}  // namespace atl::swarm
