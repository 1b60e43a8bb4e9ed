#include "atoll/collective/links.h"

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/collective/part_frame.h"
#include "atoll/collective/segments.h"
#include "atoll/swarm/wire.h"

namespace atl::collective {
namespace {

constexpr Duration kLeastStall = std::chrono::seconds(1);

}  // namespace

const Link* Links::find(int32_t number) const {
  const auto found = links_.find(number);
  return found == links_.end() ? nullptr : &found->second;
}

std::optional<int32_t> Links::number_of(net::ConnectionId connection) const {
  for (const auto& [number, link] : links_) {
    if (link.connection == connection) return number;
  }
  return std::nullopt;
}

double Links::mean_rate() const {
  double sum = 0;
  int64_t num_known = 0;
  for (const auto& [number, link] : links_) {
    if (link.connection == 0 || link.is_lost()) continue;
    const double rate = transport_.estimate(link.connection).bytes_per_second;
    sum += rate;
    num_known += rate > 0 ? 1 : 0;
  }
  return num_known == 0 ? 0 : sum / static_cast<double>(num_known);
}

bool Links::has_room() const {
  return std::ranges::none_of(
      links_, [](const auto& entry) { return entry.second.waiting_bytes > kMaxWaitingBytes; });
}

bool Links::lends() const {
  return std::ranges::any_of(links_, [](const auto& entry) { return !entry.second.lent.empty(); });
}

Links::Changes Links::view(const std::vector<swarm::Peer>& members, int32_t own, Time now) {
  Changes changes;
  for (const auto& [number, link] : links_) {
    if (std::ranges::find(members, number, &swarm::Peer::number) == members.end()) {
      changes.gone.push_back(number);
    }
  }
  for (const int32_t number : changes.gone) {
    const Link& link = links_.at(number);
    if (link.connection != 0) transport_.close(link.connection);
    links_.erase(number);
  }
  for (const swarm::Peer& peer : members) {
    if (peer.number == own) continue;
    const auto [entry, is_new] = links_.try_emplace(peer.number);
    Link& link = entry->second;
    const bool is_elsewhere = !is_new && link.address != peer.address;
    if (is_elsewhere && link.connection != 0 && !link.opened) {  // Dialled where it was.
      transport_.close(std::exchange(link.connection, 0));
    }
    const bool has_moved = is_elsewhere && link.connection == 0;
    if (has_moved) {  // It came back in another process, which nobody has tried to reach yet.
      link.lost.clear();
      link.redial.succeeded();
    } else if (link.is_lost() && link.was_reported) {  // To a coordinator that may not know it.
      link.was_reported = false;
      link.verdict_due = now;
    }
    link.address = peer.address;
    link.is_ours_to_dial = peer.number < own;
    if (!is_new && !has_moved) continue;
    if (link.is_ours_to_dial) {
      changes.to_dial.push_back(peer.number);
    } else {
      link.redial.no_later_than(now + kTheirTurn);
    }
  }
  return changes;
}

bool Links::dial(int32_t number, const swarm::PeerHello& hello) {
  Link& link = links_.at(number);
  return begin(link, transport_.connect(link.address, net::Plane::kBulk), hello);
}

bool Links::meet(int32_t number, const net::Meeting& meeting, const swarm::PeerHello& hello) {
  Link& link = links_.at(number);
  const net::ConnectionId met = transport_.meet(meeting, net::Plane::kBulk);
  if (!meeting.calls) return true;  // It comes as a visitor.
  if (link.connection != 0) transport_.close(link.connection);
  return begin(link, met, hello);
}

bool Links::begin(Link& link, net::ConnectionId connection, const swarm::PeerHello& hello) {
  link.redial.tried();
  link.opened = false;
  link.full = false;
  link.connection = connection;
  return transport_.send(connection, swarm::encode(hello)) == net::Sent::kAccepted;
}

bool Links::opened(net::ConnectionId connection, net::Way way, Time now) {
  const auto number = number_of(connection);
  if (!number) return false;
  links_.at(*number).way = way;
  links_.at(*number).opened = true;
  links_.at(*number).opened_at = now;
  return true;
}

void Links::accept(int32_t number, net::ConnectionId connection, net::Way way, Time now) {
  Link& link = links_.at(number);
  if (link.connection != 0) transport_.close(link.connection);  // Dialled from here, in vain.
  link.way = way;
  link.redial.tried();
  link.connection = connection;
  link.opened = true;
  link.opened_at = now;
  link.full = false;
}

std::optional<int32_t> Links::take_lost(net::ConnectionId connection) {
  const auto number = number_of(connection);
  if (number) links_.at(*number).connection = 0;
  return number;
}

void Links::drop(int32_t number, const std::string& reason, Time now) {
  Link& link = links_.at(number);
  if (link.connection != 0) transport_.close(std::exchange(link.connection, 0));
  link.lost = (link.opened ? "the connection was lost: " : "it cannot be reached: ") + reason;
  link.transfers.clear();
  link.lent.clear();
  link.waiting_bytes = 0;
  link.opened = false;
  link.was_reported = false;
  link.verdict_due = now + kVerdictGrace;
  if (link.is_ours_to_dial) {
    link.redial.failed(now);
  } else {
    link.redial.no_later_than(now + kTheirTurn);
  }
}

void Links::close_all() {
  for (const auto& [number, link] : links_) {
    if (link.connection != 0) transport_.close(link.connection);
  }
  links_.clear();
}

bool Links::is_dial_due(int32_t number, Time now) const {
  const Link* const link = find(number);
  return link != nullptr && link->connection == 0 && now >= link->redial.due();
}

std::optional<std::string> Links::take_verdict(int32_t number, Time now) {
  const auto found = links_.find(number);
  if (found == links_.end()) return std::nullopt;
  Link& link = found->second;
  if (!link.is_lost() || link.was_reported || now < link.verdict_due) return std::nullopt;
  link.was_reported = true;
  return link.lost;
}

bool Links::take_return(int32_t number) {
  const auto found = links_.find(number);
  if (found == links_.end()) return false;
  Link& link = found->second;
  if (!link.opened || !link.was_reported) return false;
  link.lost.clear();
  link.was_reported = false;
  link.redial.succeeded();
  return true;
}

Time Links::due() const {
  Time due = Time::max();
  for (const auto& [number, link] : links_) {
    if (link.is_lost() && !link.was_reported) due = std::min(due, link.verdict_due);
    due = std::min(due, link.redial.due());
  }
  return due;
}

void Links::post(int32_t number, Transfer transfer, Time now) {
  Link& link = links_.at(number);
  link.waiting_bytes += transfer.end - transfer.sent;
  link.transfers.push_back(std::move(transfer));
  pump(number, now);
}

void Links::lend(int32_t number, Transfer transfer, Time now) {
  links_.at(number).lent.push_back(std::move(transfer));
  pump(number, now);
}

void Links::drop_transfers(int64_t round, const std::function<bool(const Transfer&)>& is_void) {
  for (auto& [number, link] : links_) {
    std::erase_if(link.transfers, [&](const Transfer& transfer) {
      if (transfer.part.header.round != round || !is_void(transfer)) return false;
      link.waiting_bytes -= transfer.end - transfer.sent;
      return true;
    });
  }
}

void Links::writable(net::ConnectionId connection, Time now) {
  const auto number = number_of(connection);
  if (!number) return;
  links_.at(*number).full = false;
  pump(*number, now);
}

void Links::pump(int32_t number, Time now) {
  const auto found = links_.find(number);
  if (found == links_.end()) return;
  Link& link = found->second;
  if (link.connection == 0 || !link.is_open()) return;  // Who is there is not known before.
  while (!link.full && !link.transfers.empty() && send_chunk(link, link.transfers, now)) {
  }
  lend_some(now);
}

/// To all links in turn: they share the line.
void Links::lend_some(Time now) {
  const bool rounds_wait = std::ranges::any_of(links_, [](const auto& entry) {
    return entry.second.is_open() && !entry.second.transfers.empty();
  });
  for (size_t num_idle = 0; num_idle < links_.size();) {
    auto next = links_.upper_bound(last_lent_to_);
    if (next == links_.end()) next = links_.begin();
    last_lent_to_ = next->first;
    num_idle = lend_chunk(next->second, rounds_wait, now) ? 0 : num_idle + 1;
  }
}

bool Links::lend_chunk(Link& link, bool rounds_wait, Time now) {
  if (link.connection == 0 || !link.is_open() || link.full || link.lent.empty()) return false;
  // What a slow line needs for the share of the rounds is no stall.
  const double rate = transport_.estimate(link.connection).bytes_per_second;
  const double share = LendingShare::kOneIn * static_cast<double>(chunk_size(rate));
  const Duration rest(rate > 0 ? static_cast<int64_t>(share / rate * 1e9) : 0);
  if (rounds_wait && !lending_.may_lend(now, std::max(kLeastStall, rest))) return false;
  return send_chunk(link, link.lent, now);
}

bool Links::send_chunk(Link& link, std::deque<Transfer>& queue, Time now) {
  Transfer& transfer = queue.front();
  const size_t chunk_bytes = chunk_size(transport_.estimate(link.connection).bytes_per_second);
  const size_t size = std::min(chunk_bytes, transfer.end - transfer.sent);
  transfer.part.offset = transfer.base + transfer.sent;
  net::SharedFrame frame = part_frame(transfer.part, transfer.blob, transfer.sent, size);
  const size_t frame_bytes = frame.size();
  const auto sent = transport_.send_shared(link.connection, std::move(frame));
  if (sent == net::Sent::kFull) link.full = true;
  if (sent != net::Sent::kAccepted) return false;  // Writable or Lost follows.
  on_sent_(transfer.part.header.round, frame_bytes, now);
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
