#include "atoll/coordinator/probers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/swarm/wire.h"

namespace atl::swarm {
namespace {

std::string host_of(const std::string& remote) { return remote.substr(0, remote.rfind(':')); }

std::string try_again(const std::string& why, Duration wait) {
  return fmt::format("{}: try again in {:.0f} s", why, std::max(1.0, std::ceil(seconds(wait))));
}

}  // namespace

net::SharedFrame probe_reply(size_t num_bytes) {
  using Size = uint32_t;  // Ends the head.
  static const auto zeros = std::make_shared<const Bytes>(kMaxProbeBytes);
  ATOLL_CHECK(num_bytes <= zeros->size());
  Bytes head = encode(ProbeReply{});
  const auto size = static_cast<Size>(num_bytes);
  std::memcpy(head.data() + head.size() - sizeof(size), &size, sizeof(size));
  return {.head = std::move(head), .blob = zeros, .begin = 0, .num_bytes = num_bytes, .tail = {}};
}

Result<void> Probers::admit(Connection connection, const std::string& remote, Time now,
                            std::vector<Connection>& ended) {
  std::erase_if(cooling_, [&](const auto& entry) { return entry.second <= now; });
  const std::string host = host_of(remote);
  if (const auto cooling = cooling_.find(host); cooling != cooling_.end()) {
    return failure(try_again("a line from there has just been measured", cooling->second - now));
  }
  for (const auto& [_, prober] : probers_) {
    if (prober.host != host) continue;
    return failure(try_again("a line from there is being measured", prober.since + kTurn - now));
  }
  if (probers_.size() >= kMaxProbers) {
    const auto oldest = std::ranges::min_element(
        probers_, {}, [](const auto& entry) { return entry.second.since; });
    const Time makes_way = oldest->second.since + kTurn;
    if (now < makes_way) {
      return failure(try_again("others are measuring their lines", makes_way - now));
    }
    ended.push_back(oldest->first);
    end(oldest->first, now);
  }
  const Duration wait = bucket_.wait(now, -static_cast<double>(kMaxCost));
  if (wait > Duration{} || cooling_.size() >= kMaxCooling) {
    return failure(try_again("much has been measured just now", std::max(wait, kCoolDown)));
  }
  bucket_.take(now, static_cast<int64_t>(kMaxCost));
  probers_[connection] = {.host = host, .since = now, .last_word = now};
  return {};
}

Result<void> Probers::spend(Connection connection, const Probe& probe, Time now) {
  Prober& prober = probers_.at(connection);
  prober.last_word = now;
  if (probe.data.size() > kMaxProbeBytes || probe.reply_bytes > kMaxProbeBytes) {
    return failure(fmt::format("more than {} KiB in one message", kMaxProbeBytes >> 10));
  }
  const uint64_t cost = kMessageCost + probe.data.size() + probe.reply_bytes;
  if (prober.spent + cost > kMaxCost) {
    return failure("more than a coordinator moves to measure a line");
  }
  prober.spent += cost;
  return {};
}

void Probers::end(Connection connection, Time now) {
  const auto found = probers_.find(connection);
  if (found == probers_.end()) return;
  bucket_.give_back(now, static_cast<int64_t>(kMaxCost - found->second.spent));
  cooling_[found->second.host] = now + kCoolDown;
  probers_.erase(found);
}

std::vector<Probers::Connection> Probers::end_late(Time now) {
  std::vector<Connection> late;
  for (const auto& [connection, prober] : probers_) {
    if (now >= prober.deadline()) late.push_back(connection);
  }
  for (const Connection connection : late) end(connection, now);
  return late;
}

std::vector<Probers::Connection> Probers::end_all() {
  std::vector<Connection> all;
  for (const auto& [connection, _] : std::exchange(probers_, {})) all.push_back(connection);
  return all;
}

Time Probers::next_deadline() const {
  Time earliest = Time::max();
  for (const auto& [_, prober] : probers_) earliest = std::min(earliest, prober.deadline());
  return earliest;
}

}  // namespace atl::swarm
