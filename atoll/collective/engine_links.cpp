// Connections between members: made, lost and made again; what comes and goes over them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/collective/engine.h"
#include "atoll/collective/part_frame.h"
#include "atoll/swarm/rules.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

/// Whether it is the island of that name, as far as there are certificates here.
bool is_proved(const std::optional<identity::CertificateFacts>& certificate,
               const std::string& name) {
  return !certificate ||
         (certificate->peer.role == identity::Role::kIsland && certificate->peer.name == name);
}

}  // namespace

swarm::PeerHello Engine::hello_to(int32_t number) const {
  return {
      .header = member_.header(), .view = member_.view(), .number = member_.number(), .to = number};
}

void Engine::dial_peer(int32_t number, Time now) {
  if (!links_.dial(number, hello_to(number)))
    drop_link(number, "the connection was closed at once", now);
}

void Engine::meet_peer(int32_t number, const net::Meeting& meeting, Time now) {
  const Link* const link = links_.find(number);
  if (link == nullptr) return;
  const bool is_good = meeting.may_punch || link->way == net::Way::kRelayed;
  if (link->opened && is_good) return;  // It has mended by itself.
  if (link->opened) drop_link(number, "it is not trusted, and made anew through a relay", now);
  if (!links_.meet(number, meeting, hello_to(number)))
    drop_link(number, "the relay cannot be reached", now);
}

void Engine::reached(const net::Opened& opened, Time now) {
  const auto number = links_.number_of(opened.connection);
  if (!number) return;
  if (!is_proved(opened.certificate, name(*number))) {
    return drop_link(*number, fmt::format("'{}' is at its address", opened.certificate->peer.name),
                     now);
  }
  links_.opened(opened.connection, opened.way, now);
  links_.pump(*number, now);
  ask_around(now);
}

void Engine::handle_bulk(net::ConnectionId connection, const Bytes& frame, Time now) {
  const auto number = links_.number_of(connection);
  if (!number && !visitors_.contains(connection)) return;  // Closed by us; this was on its way.
  if (number && head_bytes_ > 0) {
    if (auto view = view_part(frame, head_bytes_)) {
      return take(*number, std::move(view->part), view->data, frame.size(), now);
    }
  }
  try {
    swarm::Message message = swarm::decode(frame);
    if (number) {
      handle_peer(*number, std::move(message), frame.size(), now);
    } else {
      handle_visitor(connection, message, now);
    }
  } catch (const InputError& error) {
    if (!number) return transport_.close(connection);
    accuse(*number,
           fmt::format("island '{}' sent what is no message: {}", name(*number), error.what()),
           now);
  }
}

void Engine::handle_visitor(net::ConnectionId connection, const swarm::Message& message, Time now) {
  if (!visitors_.hear(connection, message)) return transport_.close(connection);
  const auto* const hello = std::get_if<swarm::PeerHello>(&message);
  if (hello != nullptr && !names_.empty()) greet(connection, *hello, now);
}

void Engine::handle_peer(int32_t number, swarm::Message message, size_t frame_bytes, Time now) {
  if (auto* const part = std::get_if<swarm::Part>(&message)) {
    const Bytes data = std::exchange(part->data, {});
    take(number, std::move(*part), data, frame_bytes, now);
  } else if (const auto* fetch = std::get_if<swarm::Fetch>(&message)) {
    answer(number, *fetch, now);
  } else if (const auto* not_held = std::get_if<swarm::NotHeld>(&message)) {
    fetcher_.refused(number, *not_held);
    ask_around(now);
  } else {
    accuse(
        number,
        fmt::format("island '{}' sent a {} between parts", name(number), swarm::kind_name(message)),
        now);
  }
}

void Engine::accuse(int32_t number, const std::string& reason, Time now) {
  if (number < 0) return trouble(reason, now);
  if (links_.contains(number)) drop_link(number, reason, now);
  act(member_.trouble(reason, number), now);
}

/// It connects to those of lower number; again when its last connection is gone, or is about to be.
/// To those of higher number only where these do not get through.
void Engine::greet(net::ConnectionId connection, const swarm::PeerHello& hello, Time now) {
  if (hello.header.run != member_.run() || hello.to != member_.number()) {
    return transport_.close(connection);
  }
  const Link* const link = links_.find(hello.number);
  if (link == nullptr) return;  // Of a view that is not here yet, or long over.
  if (link->is_ours_to_dial && link->is_open()) return transport_.close(connection);
  if (!is_proved(visitors_.certificate(connection), name(hello.number))) {
    return transport_.close(connection);
  }
  if (link->opened) drop_link(hello.number, "it has connected anew", now);
  if (over_) return;
  const net::Way way = visitors_.way(connection);
  const std::vector<swarm::Fetch> early = visitors_.take(connection);
  links_.accept(hello.number, connection, way, now);
  check_links(now);
  links_.pump(hello.number, now);
  for (const swarm::Fetch& fetch : early) {
    if (links_.contains(hello.number)) answer(hello.number, fetch, now);
  }
  ask_around(now);
}

void Engine::take(int32_t number, swarm::Part part, std::span<const std::byte> data,
                  size_t frame_bytes, Time now) {
  if (part.kind > swarm::PartKind::kMean) {
    if (part.receiver == member_.number()) return take_fetched(number, part, data, now);
    return accuse(number,
                  fmt::format("island '{}' gave this one what member {} had asked for",
                              name(number), part.receiver),
                  now);
  }
  receive(number, std::move(part), data, frame_bytes, now);
}

void Engine::drop_link(int32_t number, const std::string& reason, Time now) {
  links_.drop(number, reason, now);
  for (auto& [round_number, round] : rounds_) {
    std::erase_if(round.early, [&](const swarm::Part& early) { return early.sender == number; });
    if (round.exchange == nullptr) continue;
    round.exchange->forget(number);
    const std::vector<int32_t>& members = round.exchange->plan().numbers;
    if (std::ranges::count(members, number) > 0) round.has_lost_link = true;
  }
  lender_.forget(number);
  fetcher_.lost(number);
  ask_around(now);
}

void Engine::check_links(Time now) {
  bool any_is_back = false;
  std::vector<int32_t> numbers;
  for (const auto& [number, link] : links_.all()) numbers.push_back(number);
  for (const int32_t number : numbers) {
    if (over_) return;
    if (links_.is_dial_due(number, now)) dial_peer(number, now);
    if (const auto why = links_.take_verdict(number, now)) {
      act(member_.link_changed(number, false, *why), now);
    }
    if (links_.take_return(number)) {
      act(member_.link_changed(number, true, "", links_.find(number)->way), now);
      links_.pump(number, now);
      any_is_back = true;
    }
  }
  if (any_is_back) ask_around(now);
}

void Engine::check_stalls(Time now) {
  std::vector<std::pair<int32_t, int64_t>> silent;
  for (const auto& [number, round] : rounds_) {
    // While others move something, what this member waits for may come yet.
    const Time progressed = std::max(round.progressed, member_.last_moved());
    if (round.exchange == nullptr || round.prepared || round.has_lost_link) continue;
    if (now - progressed <= options_.silence_timeout) continue;
    for (const Debtor& debtor : round.exchange->debtors()) {
      // Who owes a mean may be waiting for a contribution itself: it says so first, and the next
      // attempt comes when links have been waited for.
      const Duration patience = debtor.owes_only_means
                                    ? 2 * options_.silence_timeout + swarm::kLongestWaitForLinks
                                    : options_.silence_timeout;
      if (now - progressed > patience) {
        silent.emplace_back(debtor.number, number);
      }
    }
  }
  for (const auto& [member, round] : silent) {
    const Link* const link = links_.find(member);
    if (link == nullptr || link->is_lost()) continue;
    if (now - link->opened_at <= options_.silence_timeout) continue;
    drop_link(member,
              fmt::format("in round {} nothing came for {:.0f} s", round,
                          seconds(options_.silence_timeout)),
              now);
  }
}

const std::string& Engine::name(int32_t number) const { return names_.at(number); }

}  // namespace atl::collective
