#include "atoll/coordinator/join_desk.h"

#include <algorithm>
#include <utility>

#include "atoll/identity/guess_limit.h"
#include "atoll/net/address.h"

namespace atl::swarm {

bool JoinDesk::handle(const net::Event& event, Time now) {
  if (const auto* opened_event = std::get_if<net::Opened>(&event)) {
    if (opened_event->plane != net::Plane::kJoin) return false;
    opened(*opened_event, now);
    return true;
  }
  const auto connection = std::visit([](const auto& e) { return e.connection; }, event);
  const auto found = visitors_.find(connection);
  if (found == visitors_.end()) return false;
  if (std::holds_alternative<net::Lost>(event)) {
    visitors_.erase(found);
  } else if (const auto* received = std::get_if<net::Received>(&event)) {
    if (found->second.is_answered) return true;
    const auto& frame = received->frame;
    const std::string reply =
        answer_(found->second.run, {reinterpret_cast<const char*>(frame.data()), frame.size()},
                found->second.caller);
    const auto bytes = as_byte_span(reply);
    dismiss(connection, Bytes(bytes.begin(), bytes.end()));
  }
  return true;
}

void JoinDesk::opened(const net::Opened& opened, Time now) {
  const auto address = net::parse_address(opened.remote);
  const std::string host = address ? address->host : opened.remote;
  const std::string group = identity::guess_group(host);
  const auto is_waiting_stranger = [](const auto& entry) {
    return !entry.second.is_answered && !entry.second.caller.certificate;
  };
  const auto of_group = std::ranges::count_if(visitors_, [&](const auto& entry) {
    return is_waiting_stranger(entry) && entry.second.group == group;
  });
  const auto num_strangers = std::ranges::count_if(visitors_, is_waiting_stranger);
  // Who has waited longest has had its time: connections are numbered in their order.
  const auto oldest = std::ranges::find_if(visitors_, is_waiting_stranger);
  const bool is_stranger = !opened.certificate;
  if (is_stranger && num_strangers >= static_cast<std::ptrdiff_t>(kMost)) dismiss(oldest->first);
  visitors_[opened.connection] = {.caller = {.address = host, .certificate = opened.certificate},
                                  .run = opened.run,
                                  .group = group,
                                  .since = now};
  if (is_stranger && of_group >= kMostOfOneGroup) dismiss(opened.connection);
}

void JoinDesk::dismiss(net::ConnectionId connection, Bytes frame) {
  visitors_.at(connection).is_answered = true;
  last_words_.push_back({connection, std::move(frame)});
}

void JoinDesk::tick(Time now) {
  for (const auto& [connection, visitor] : visitors_) {
    if (!visitor.is_answered && now - visitor.since >= kPatience) dismiss(connection);
  }
}

std::vector<JoinDesk::LastWord> JoinDesk::take_last_words() {
  return std::exchange(last_words_, {});
}

}  // namespace atl::swarm
