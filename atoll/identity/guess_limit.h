#pragma once
// How often strangers may guess: a few times at once from one address, then once in a while; and
// so often from all addresses together. What is remembered of addresses has a named maximum. Pure;
// for one thread.
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "atoll/identity/wall_time.h"

namespace atl::identity {

/// What shares a number of guesses: an IPv4 address, the network (/64) of an IPv6 address, which is
/// one customer's; any other text as it is. Without the port, which a stranger chooses.
std::string guess_group(std::string_view host);

class GuessLimit {
 public:
  struct Rate {
    double burst;
    double per_second;
  };
  static constexpr Rate kOfOne{.burst = 5, .per_second = 0.1};
  static constexpr Rate kOfAll{.burst = 200, .per_second = 10};
  static constexpr size_t kMaxGroups = 4096;

  /// Whether who calls from there may try again.
  bool allows(std::string_view host, WallTime now) const;
  /// It tried, and was wrong.
  void count(std::string_view host, WallTime now);
  size_t num_groups() const { return groups_.size(); }

 private:
  struct Guesses {
    double spent = 0;  // Of the burst; it flows back at the rate.
    WallTime when;
  };
  static double spent_at(const Guesses& guesses, Rate rate, WallTime now);
  void forget_recovered(WallTime now);

  std::map<std::string, Guesses> groups_;
  Guesses others_;  // All that come while there is no room for more groups.
  Guesses all_;
};

}  // namespace atl::identity
