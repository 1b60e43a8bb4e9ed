#include "atoll/identity/guess_limit.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>

#include "atoll/base/name.h"

namespace atl::identity {

std::string guess_group(std::string_view host) {
  std::string text(host.substr(0, host.find('%')));  // Without the zone of a link-local address.
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
  }
  in6_addr address{};
  if (::inet_pton(AF_INET6, text.c_str(), &address) != 1) return printable(text);
  constexpr int kNetworkBytes = 8;
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    const auto* const four = address.s6_addr + 12;
    return fmt::format("{}.{}.{}.{}", four[0], four[1], four[2], four[3]);
  }
  std::string network;
  for (int i = 0; i < kNetworkBytes; ++i) network += fmt::format("{:02x}", address.s6_addr[i]);
  return network + "/64";
}

double GuessLimit::spent_at(const Guesses& guesses, Rate rate, WallTime now) {
  const auto passed = static_cast<double>((now - guesses.when).count());
  return std::max(0.0, guesses.spent - std::max(0.0, passed) * rate.per_second);
}

bool GuessLimit::allows(std::string_view host, WallTime now) const {
  const auto found = groups_.find(guess_group(host));
  const bool is_known = found != groups_.end();
  const Guesses& own = is_known || groups_.size() < kMaxGroups
                           ? (is_known ? found->second : Guesses{.spent = 0, .when = now})
                           : others_;
  return spent_at(own, kOfOne, now) + 1 <= kOfOne.burst &&
         spent_at(all_, kOfAll, now) + 1 <= kOfAll.burst;
}

void GuessLimit::count(std::string_view host, WallTime now) {
  const auto spend = [now](Guesses& guesses, Rate rate) {
    guesses = {.spent = std::min(rate.burst, spent_at(guesses, rate, now) + 1), .when = now};
  };
  const std::string group = guess_group(host);
  if (!groups_.contains(group) && groups_.size() >= kMaxGroups) forget_recovered(now);
  const bool has_room = groups_.contains(group) || groups_.size() < kMaxGroups;
  spend(has_room ? groups_[group] : others_, kOfOne);
  spend(all_, kOfAll);
}

void GuessLimit::forget_recovered(WallTime now) {
  std::erase_if(groups_,
                [now](const auto& group) { return spent_at(group.second, kOfOne, now) == 0; });
}

}  // namespace atl::identity
