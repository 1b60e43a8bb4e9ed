// Connections between members: made, lost and made again; what comes and goes over them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/codec/codec.h"
#include "atoll/collective/engine.h"
#include "atoll/collective/part_frame.h"
#include "atoll/swarm/rules.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

/// A member that dies is lost to the coordinator too, which can say so better: it gets this long.
constexpr Duration kVerdictGrace = std::chrono::milliseconds(250);
constexpr Duration kFirstPause = std::chrono::milliseconds(100);  // Between tries to connect.
constexpr Duration kLongestPause = std::chrono::seconds(2);
constexpr size_t kMaxEarlyFetches = 64;
constexpr Duration kLeastStall = std::chrono::seconds(1);
constexpr size_t kSlackPerMember = size_t{1} << 20;  // For parts that are kept.
/// Counted for each of them beside its data: the struct, and what two allocations take.
constexpr size_t kPartOverhead = 256;
static_assert(sizeof(swarm::Part) + 64 <= kPartOverhead);

}  // namespace

void Engine::dial_peer(int32_t number, Time now) {
  Link& link = links_.at(number);
  link.next_dial = Time::max();
  link.opened = false;
  link.full = false;
  link.connection = transport_.connect(link.address, net::Plane::kBulk);
  const auto sent = transport_.send(
      link.connection,
      swarm::encode(swarm::PeerHello{
          .header = member_.header(), .view = member_.view(), .number = member_.number()}));
  if (sent != net::Sent::kAccepted) drop_link(number, "the connection was closed at once", now);
}

void Engine::handle_bulk(net::ConnectionId connection, const Bytes& frame, Time now) {
  const auto number = number_of(connection);
  const auto visitor = visitors_.find(connection);
  if (!number && visitor == visitors_.end()) return;  // Closed by us; this was on its way.
  if (number && head_bytes_ > 0) {
    if (auto view = view_part(frame, head_bytes_)) {
      return take(*number, std::move(view->part), view->data, frame.size(), now);
    }
  }
  try {
    swarm::Message message = swarm::decode(frame);
    auto* const part = std::get_if<swarm::Part>(&message);
    const auto* const hello = std::get_if<swarm::PeerHello>(&message);
    if (!number) {
      const auto* const fetch = std::get_if<swarm::Fetch>(&message);
      Visitor& known = visitor->second;
      if (known.hello && fetch != nullptr && known.early.size() < kMaxEarlyFetches) {
        return known.early.push_back(*fetch);  // This member does not know of it yet.
      }
      if (hello == nullptr || known.hello) return transport_.close(connection);
      known.hello = *hello;
      if (!names_.empty()) greet(connection, *hello, now);
    } else if (part != nullptr) {
      const Bytes data = std::exchange(part->data, {});
      take(*number, std::move(*part), data, frame.size(), now);
    } else if (const auto* fetch = std::get_if<swarm::Fetch>(&message)) {
      answer(*number, *fetch, now);
    } else if (const auto* not_held = std::get_if<swarm::NotHeld>(&message)) {
      fetcher_.refused(*number, *not_held);
      ask_around(now);
    } else {
      accuse(*number,
             fmt::format("island '{}' sent a {} between parts", name(*number),
                         swarm::kind_name(message)),
             now);
    }
  } catch (const InputError& error) {
    if (number) {
      accuse(*number,
             fmt::format("island '{}' sent what is no message: {}", name(*number), error.what()),
             now);
    } else {
      transport_.close(connection);
    }
  }
}

void Engine::accuse(int32_t number, const std::string& reason, Time now) {
  if (number < 0) return trouble(reason, now);
  if (links_.contains(number)) drop_link(number, reason, now);
  act(member_.trouble(reason, number), now);
}

/// It connects to those of lower number; again when its last connection is gone, or is about to be.
void Engine::greet(net::ConnectionId connection, const swarm::PeerHello& hello, Time now) {
  const auto link = links_.find(hello.number);
  if (hello.header.run != member_.run() || hello.number < member_.number()) {
    return transport_.close(connection);
  }
  if (link == links_.end()) return;  // Of a view that is not here yet, or long over.
  if (link->second.connection != 0) drop_link(hello.number, "it has connected anew", now);
  const auto visitor = visitors_.extract(connection);
  link->second.connection = connection;
  link->second.opened = true;
  link->second.opened_at = now;
  link->second.full = false;
  check_links(now);
  pump(hello.number, now);
  if (!visitor.empty()) {
    for (const swarm::Fetch& fetch : visitor.mapped().early) {
      if (links_.contains(hello.number)) answer(hello.number, fetch, now);
    }
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

void Engine::receive(int32_t over, swarm::Part part, std::span<const std::byte> data,
                     size_t frame_bytes, Time now) {
  const bool is_for_me = part.receiver == member_.number();
  const bool is_relayed = part.sender != over || !is_for_me;
  if ((part.sender != over && !is_for_me) || part.header.run != member_.run()) {
    return accuse(
        over,
        fmt::format("island '{}' sent a part of run '{}' in the name of member {} to "
                    "member {}",
                    name(over), swarm::printable(part.header.run), part.sender, part.receiver),
        now);
  }
  const auto found = rounds_.find(part.header.round);
  member_.count_moved(frame_bytes);
  // It is over, or goes on without this member.
  if (found == rounds_.end() || !found->second.was_announced || found->second.decided) return;
  Round& round = found->second;
  round.bytes_received += static_cast<int64_t>(frame_bytes);
  if (data.empty()) {
    return accuse(over,
                  fmt::format("island '{}' sent a part of round {} without data", name(over),
                              part.header.round),
                  now);
  }
  const auto attempt_of = [](const swarm::Header& header) {
    return std::pair(header.term, header.attempt);
  };
  const bool has_exchange = is_for_me && round.exchange != nullptr;
  const swarm::Header known = has_exchange ? round.exchange->plan().header
                              : is_for_me  ? swarm::Header{}
                                           : round.newest.header;
  if (attempt_of(part.header) > attempt_of(known)) {
    round.early_bytes += data.size() + kPartOverhead;
    if (round.early_bytes > (links_.size() + 1) * links_.size() * most_bytes(round)) {
      return accuse(
          over,
          fmt::format("island '{}' sent more than round {} has", name(over), part.header.round),
          now);
    }
    part.data.assign(data.begin(), data.end());
    round.early.push_back({over, std::move(part)});
    return;
  }
  const bool is_past = attempt_of(part.header) < attempt_of(known);
  if (is_past && is_relayed) return;  // All of it is sent again.
  const bool goes_so =
      is_for_me ? neighbour(*round.exchange, part.sender) == over
                : std::ranges::find(round.newest.relays,
                                    swarm::Relay{std::min(part.sender, part.receiver),
                                                 std::max(part.sender, part.receiver),
                                                 member_.number()}) != round.newest.relays.end();
  if (!is_past && !goes_so) {
    return accuse(over,
                  fmt::format("island '{}' sent a part of round {} from member {} to member {}, "
                              "which does not go that way",
                              name(over), part.header.round, part.sender, part.receiver),
                  now);
  }
  if (!is_for_me) return relay(round, std::move(part), data, now);
  round.progressed = now;
  if (auto result = round.exchange->receive(part, data); !result) {
    accuse(part.sender, result.error().message, now);
  }
}

void Engine::relay(Round& round, swarm::Part part, std::span<const std::byte> data, Time now) {
  size_t& bytes = round.relayed_bytes[{part.sender, part.receiver}];
  bytes += data.size() + kPartOverhead;
  if (bytes > most_bytes(round)) {
    return accuse(part.sender,
                  fmt::format("island '{}' sent member {} more than round {} has",
                              name(part.sender), part.receiver, part.header.round),
                  now);
  }
  const int32_t receiver = part.receiver;
  const auto found = links_.find(receiver);
  // Another attempt is coming.
  if (found == links_.end() || !found->second.lost.empty()) return;
  const size_t base = part.offset;
  found->second.waiting_bytes += data.size();
  found->second.transfers.push_back(
      {.part = std::move(part),
       .blob = std::make_shared<const Bytes>(data.begin(), data.end()),
       .end = data.size(),
       .base = base});
  pump(receiver, now);
}

int32_t Engine::neighbour(const Exchange& exchange, int32_t number) {
  const auto found = exchange.plan().via.find(number);
  return found == exchange.plan().via.end() ? number : found->second;
}

size_t Engine::most_bytes(const Round& round) const {
  // A contribution and a mean, in parts as large as they can be: only the last one of a segment is
  // shorter.
  const size_t count = round.contribution->num_values();
  const size_t encoded = round.contribution->codec->max_encoded_bytes(count);
  const size_t num_parts =
      encoded / kChunkBytes + count / segment_size(count, round.contribution->topology) + 1;
  return 2 * (encoded + num_parts * 2 * kPartOverhead) + kSlackPerMember;
}

void Engine::drop_transfers(int64_t round, const std::function<bool(const Transfer&)>& is_void) {
  for (auto& [number, link] : links_) {
    std::erase_if(link.transfers, [&](const Transfer& transfer) {
      if (transfer.part.header.round != round || !is_void(transfer)) return false;
      link.waiting_bytes -= transfer.end - transfer.sent;
      return true;
    });
  }
}

void Engine::lose_bulk(net::ConnectionId connection, const std::string& reason, Time now) {
  visitors_.erase(connection);
  if (const auto number = number_of(connection)) {
    links_.at(*number).connection = 0;
    drop_link(*number, reason, now);
  }
}

void Engine::drop_link(int32_t number, const std::string& reason, Time now) {
  Link& link = links_.at(number);
  if (link.connection != 0) transport_.close(std::exchange(link.connection, 0));
  link.lost = (link.opened ? "the connection was lost: " : "it cannot be reached: ") + reason;
  link.transfers.clear();
  link.lent.clear();
  link.waiting_bytes = 0;
  link.opened = false;
  link.was_reported = false;
  link.verdict_due = now + kVerdictGrace;
  for (auto& [round_number, round] : rounds_) {
    std::erase_if(round.early, [&](const EarlyPart& early) { return early.over == number; });
    if (round.exchange == nullptr) continue;
    if (neighbour(*round.exchange, number) == number) round.exchange->forget(number);
    for (const auto& [other, via] : round.exchange->plan().via) {
      if (via == number) round.exchange->forget(other);
    }
  }
  lender_.forget(number);
  fetcher_.lost(number);
  if (number < member_.number()) {
    link.next_dial = now + link.pause;
    link.pause = std::min(link.pause * 2, kLongestPause);
  }
  links_due_ = std::min({links_due_, link.verdict_due, link.next_dial});
  ask_around(now);
}

void Engine::check_links(Time now) {
  links_due_ = Time::max();
  bool any_is_back = false;
  std::vector<int32_t> numbers;
  for (const auto& [number, link] : links_) numbers.push_back(number);
  for (const int32_t number : numbers) {
    const auto found = links_.find(number);
    if (found == links_.end() || over_) continue;
    Link& link = found->second;
    if (link.connection == 0 && now >= link.next_dial) dial_peer(number, now);
    if (!link.lost.empty() && !link.was_reported && now >= link.verdict_due) {
      link.was_reported = true;
      act(member_.link_changed(number, false, link.lost), now);
    }
    if (!link.lost.empty() && link.opened && link.was_reported) {
      act(member_.link_changed(number, true, ""), now);
      link.lost.clear();
      link.pause = kFirstPause;
      any_is_back = true;
      pump(number, now);
    }
    if (!link.lost.empty() && !link.was_reported) {
      links_due_ = std::min(links_due_, link.verdict_due);
    }
    links_due_ = std::min(links_due_, link.next_dial);
  }
  if (any_is_back) ask_around(now);
}

void Engine::check_stalls(Time now) {
  std::vector<std::pair<int32_t, int64_t>> silent;
  for (const auto& [number, round] : rounds_) {
    // While others move something, what this member waits for may come yet.
    const Time progressed = std::max(round.progressed, member_.last_moved());
    if (round.exchange == nullptr || now - progressed <= options_.silence_timeout) continue;
    for (const int32_t member : silent_to_relay(round)) silent.emplace_back(member, number);
    if (round.prepared) continue;
    for (const Debtor& debtor : round.exchange->debtors()) {
      // A relay misses who is silent behind it too, and who owes a mean may be waiting for a
      // contribution itself: they say so first.
      const int32_t over = neighbour(*round.exchange, debtor.number);
      const int patience = 1 + (over != debtor.number ? 1 : 0) + (debtor.owes_only_means ? 2 : 0);
      if (now - progressed > patience * options_.silence_timeout) silent.emplace_back(over, number);
    }
  }
  for (const auto& [over, round] : silent) {
    if (!links_.contains(over) || !links_.at(over).lost.empty()) continue;
    if (now - links_.at(over).opened_at <= options_.silence_timeout) continue;
    drop_link(over,
              fmt::format("in round {} nothing came for {:.0f} s", round,
                          seconds(options_.silence_timeout)),
              now);
  }
}

/// Whose contribution this member is to pass on in the newest attempt, and from whom nothing came.
std::vector<int32_t> Engine::silent_to_relay(const Round& round) const {
  const swarm::OpenAttempt& attempt = round.newest;
  const bool gathers = round.contribution->topology == Topology::kGather;
  const auto rank = [&](int32_t number) {
    return static_cast<size_t>(std::ranges::find(attempt.members, number) -
                               attempt.members.begin());
  };
  const auto sends = [&](int32_t from, int32_t to) {
    return attempt.weights[rank(from)] > 0 && (gathers || attempt.shares[rank(to)] > 0);
  };
  std::vector<int32_t> silent;
  for (const swarm::Relay& relay : attempt.relays) {
    if (relay.via != member_.number()) continue;
    for (const auto& [from, to] : {std::pair(relay.a, relay.b), std::pair(relay.b, relay.a)}) {
      if (sends(from, to) && !round.relayed_bytes.contains({from, to})) silent.push_back(from);
    }
  }
  return silent;
}

void Engine::pump(int32_t number, Time now) {
  const auto found = links_.find(number);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (link.connection == 0 || !link.lost.empty()) return;
  while (!link.full && !link.transfers.empty() && send_some(link, link.transfers, now)) {
  }
  lend(now);
}

/// To all links in turn: they share the line.
void Engine::lend(Time now) {
  const bool rounds_wait = std::ranges::any_of(links_, [](const auto& entry) {
    return entry.second.opened && entry.second.lost.empty() && !entry.second.transfers.empty();
  });
  for (size_t num_idle = 0; num_idle < links_.size();) {
    auto next = links_.upper_bound(last_lent_to_);
    if (next == links_.end()) next = links_.begin();
    last_lent_to_ = next->first;
    num_idle = lend_chunk(next->second, rounds_wait, now) ? 0 : num_idle + 1;
  }
}

bool Engine::lend_chunk(Link& link, bool rounds_wait, Time now) {
  if (link.connection == 0 || !link.lost.empty() || link.full || link.lent.empty()) return false;
  // What a slow line needs for the share of the rounds is no stall.
  const double rate = transport_.estimate(link.connection).bytes_per_second;
  const double share = LendingShare::kOneIn * static_cast<double>(chunk_size(rate));
  const Duration rest(rate > 0 ? static_cast<int64_t>(share / rate * 1e9) : 0);
  if (rounds_wait && !lending_.may_lend(now, std::max(kLeastStall, rest))) return false;
  return send_some(link, link.lent, now);
}

/// One chunk of the first transfer. False if the connection takes no more.
bool Engine::send_some(Link& link, std::deque<Transfer>& queue, Time now) {
  Transfer& transfer = queue.front();
  const size_t chunk_bytes = chunk_size(transport_.estimate(link.connection).bytes_per_second);
  const size_t size = std::min(chunk_bytes, transfer.end - transfer.sent);
  transfer.part.offset = transfer.base + transfer.sent;
  net::SharedFrame frame = part_frame(transfer.part, transfer.blob, transfer.sent, size);
  const size_t frame_bytes = frame.size();
  const auto sent = transport_.send_shared(link.connection, std::move(frame));
  if (sent == net::Sent::kFull) link.full = true;
  if (sent != net::Sent::kAccepted) return false;  // Writable or Lost follows.
  member_.count_moved(frame_bytes);
  if (const auto round = rounds_.find(transfer.part.header.round); round != rounds_.end()) {
    // What goes out is progress too: over a slow line a member hears nothing while it sends.
    round->second.progressed = now;
    round->second.bytes_sent += static_cast<int64_t>(frame_bytes);
  }
  transfer.sent += size;
  if (&queue == &link.transfers) {
    link.waiting_bytes -= size;
    lending_.sent_for_rounds(size, now);
  } else {
    lending_.lent(size, now);
  }
  if (transfer.sent == transfer.end) queue.pop_front();
  return true;
}

}  // namespace atl::collective
