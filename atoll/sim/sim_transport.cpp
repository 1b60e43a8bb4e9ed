#include "atoll/sim/sim_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/random.h"
#include "atoll/sim/sim_host.h"

namespace atl::sim {

void SimNetwork::lose(End& end, const std::string& reason) {
  if (end.over) return;
  end.over = true;
  end.closing = true;
  end.held.clear();
  if (end.host != nullptr) end.host->report_loss(end.id, reason);
}

SimNetwork::SimNetwork(SimOptions options) : options_(options) {}

SimNetwork::~SimNetwork() { ATOLL_CHECK(hosts_.empty(), "a transport outlives its network"); }

std::unique_ptr<net::Transport> SimNetwork::make_transport(const std::string& host,
                                                           net::Transport::Sink sink) {
  return std::make_unique<Host>(*this, host, std::move(sink));
}

SimNetwork::Link& SimNetwork::link(const std::string& from, const std::string& to) {
  const auto [found, is_new] = links_.try_emplace({from, to});
  if (is_new) found->second.options = options_.link;
  return found->second;
}

void SimNetwork::set_link(const std::string& a, const std::string& b, LinkOptions link_options) {
  link(a, b).options = link_options;
  link(b, a).options = link_options;
}

bool SimNetwork::is_cut(const std::string& a, const std::string& b) { return link(a, b).is_cut; }

bool SimNetwork::is_cut_from(const End& end) {
  return std::ranges::any_of(end.hops(),
                             [&](const auto& hop) { return is_cut(hop.first, hop.second); });
}

double SimNetwork::draw() { return random_uniform(options_.seed, 0, num_draws_++); }

Duration SimNetwork::flight_time(const Link& link) {
  const double jitter = static_cast<double>(link.options.jitter.count()) * draw();
  return link.options.latency + Duration(static_cast<int64_t>(jitter));
}

Duration SimNetwork::flight_time_from(const End& end) {
  Duration time{};
  for (const auto& [from, to] : end.hops()) time += flight_time(link(from, to));
  return time;
}

void SimNetwork::transmit(const std::shared_ptr<End>& from, Bytes frame, bool last) {
  Link& way = link(from->local, from->relay != nullptr ? from->relay_name : from->remote);
  const double rate = way.options.bits_per_second;
  const double bits = 8.0 * static_cast<double>(frame.size());
  const Duration sending(rate > 0 ? static_cast<int64_t>(bits / rate * 1e9) : 0);
  const Time departure = is_brief(from->plane) ? way.line.send_control(queue_.now(), sending)
                                               : way.line.send_bulk(queue_.now(), sending);

  const auto size = static_cast<int64_t>(frame.size());
  auto item = std::make_shared<Item>(Item{from, std::move(frame), last});
  if (from->plane == Plane::kBulk) item->mark = from->estimator.sent(queue_.now(), size);
  item->breaks = !last && way.options.break_chance > 0 && draw() < way.options.break_chance;
  Time arrival = departure + flight_time(way);
  if (from->relay != nullptr) {
    const Link& rest = link(from->relay_name, from->remote);
    const double rest_rate = rest.options.bits_per_second;
    from->relay_free = std::max(arrival, from->relay_free) +
                       Duration(rest_rate > 0 ? static_cast<int64_t>(bits / rest_rate * 1e9) : 0);
    arrival = from->relay_free + flight_time(rest);
  }
  from->last_arrival = std::max(from->last_arrival, arrival);
  queue_.at(departure, [this, item] {
    if (!is_cut_from(*item->from)) depart(item);
  });
  queue_.at(from->last_arrival, [this, item] { arrive(item); });
}

void SimNetwork::depart(const std::shared_ptr<Item>& item) {
  End& end = *item->from;
  if (item->departed || end.died) return;
  item->departed = true;
  end.queued_bytes -= item->frame.size();
  if (end.refused && end.queued_bytes <= options_.queue_bytes / 2 && !end.closing &&
      end.host != nullptr) {
    end.refused = false;
    end.host->emit(net::Writable{end.id});
  }
}

void SimNetwork::arrive(const std::shared_ptr<Item>& item) {
  const auto peer = item->from->peer.lock();
  if (!peer || peer->over) return;
  if (is_cut_from(*item->from) || !peer->held.empty()) {
    peer->held.push_back(item);
    return;
  }
  depart(item);
  deliver(*item);
}

void SimNetwork::deliver(const Item& item) {
  const auto peer = item.from->peer.lock();
  if (!item.departed || !peer || peer->over) return;
  if (item.breaks) {
    lose(*peer, fmt::format("connection to {} reset", peer->remote));
    break_far_side(*peer, fmt::format("connection to {} reset", peer->local));
  } else if (item.last) {
    lose(*peer, fmt::format("closed by {}", peer->remote));
    break_far_side(*peer, "closed by this side");
  } else if (!peer->closing) {
    if (peer->plane == Plane::kBulk) {  // The sender would hear of it after the way back.
      Duration back{};
      for (const auto& [from, to] : peer->hops()) back += link(from, to).options.latency;
      item.from->estimator.arrived(queue_.now() + back, item.mark);
    }
    peer->host->receive(peer->id, item.frame);
  }
}

void SimNetwork::release_held(const std::string& from, const std::string& to) {
  for (const auto& end : ends_between(to, from)) {
    const auto sender = end->peer.lock();
    if (!sender || !sender->sends_over(from, to) || end->held.empty()) continue;
    // What arrives until then queues up behind them.
    queue_.after(flight_time(link(from, to)), [this, end, sender] {
      while (!end->held.empty() && !is_cut_from(*sender)) {
        const std::shared_ptr<Item> item = end->held.front();
        end->held.pop_front();
        depart(item);
        deliver(*item);
      }
    });
  }
}

void SimNetwork::begin_close(const std::shared_ptr<End>& end) {
  if (end->closing) return;
  end->closing = true;
  if (end->opened) transmit(end, {}, /*last=*/true);
  queue_.after(options_.close_timeout, [this, end] {
    break_far_side(*end, fmt::format("closed by {}", end->local));
    lose(*end, "closed by this side before everything was sent");
  });
}

void SimNetwork::break_far_side(const End& end, const std::string& reason) {
  const auto peer = end.peer.lock();
  if (!peer) return;
  queue_.after(flight_time_from(end), [this, peer, reason, hops = end.hops()] {
    // Behind a cut nothing is heard: the keepalive finds out.
    const bool is_heard =
        std::ranges::none_of(hops, [&](const auto& hop) { return is_cut(hop.first, hop.second); });
    if (is_heard) lose(*peer, reason);
  });
}

std::vector<std::shared_ptr<SimNetwork::End>> SimNetwork::ends_between(const std::string& a,
                                                                       const std::string& b) const {
  std::vector<std::shared_ptr<End>> found;
  for (const Host* host : hosts_) {
    for (const auto& [id, end] : host->ends()) {
      if (end->uses(a, b)) found.push_back(end);
    }
  }
  return found;
}

void SimNetwork::cut_one_way(const std::string& from, const std::string& to) {
  Link& way = link(from, to);
  if (way.is_cut) return;
  way.is_cut = true;
  queue_.after(options_.keepalive_timeout, [this, &way, cut = ++way.num_cuts, from, to] {
    if (way.is_cut && way.num_cuts == cut) lose_silent_connections(from, to);
  });
}

void SimNetwork::lose_silent_connections(const std::string& from, const std::string& to) {
  for (const auto& end : ends_between(from, to)) {
    if (end->opened) lose(*end, fmt::format("{} no longer answers", end->remote));
  }
}

void SimNetwork::cut(const std::string& a, const std::string& b) {
  cut_one_way(a, b);
  cut_one_way(b, a);
}

void SimNetwork::heal(const std::string& a, const std::string& b) {
  link(a, b).is_cut = false;
  link(b, a).is_cut = false;
  release_held(a, b);
  release_held(b, a);
}

void SimNetwork::crash(const std::string& host) {
  const std::vector<Host*> hosts = hosts_;
  for (Host* process : hosts) {
    if (process->name() == host) process->crash();
  }
}

void SimNetwork::break_connections(const std::string& a, const std::string& b) {
  for (const auto& end : ends_between(a, b)) {
    queue_.after({}, [end] { lose(*end, fmt::format("connection to {} reset", end->remote)); });
  }
}

}  // namespace atl::sim
