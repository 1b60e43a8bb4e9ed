#include "atoll/chain/placer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace atl::chain {
namespace {

/// Nobody counts for more, or less, than so many others: a speed is what its server says.
constexpr double kMostTimesMedian = 1000;

int32_t num_layers_of(const Seats& seats) { return seats.begin()->second->lease.num_layers; }

double median_speed(const Seats& seats) {
  std::vector<double> speeds;
  for (const auto& [name, seat] : seats) {
    if (seat->lease.layers_per_s > 0) speeds.push_back(seat->lease.layers_per_s);
  }
  if (speeds.empty()) return 1;
  const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
  std::ranges::nth_element(speeds, middle);
  return *middle;
}

Placer::Order tell(const std::string& server, Seat& seat, const Span& layers, std::string reason,
                   Time now) {
  seat.told = layers;
  seat.told_at = now;
  seat.moves = seat.lease.state != LeaseState::kWaiting;
  return {.server = server, .layers = layers, .reason = std::move(reason)};
}

}  // namespace

Span Seat::layers() const {
  if (told) return *told;
  return lease.state == LeaseState::kDraining ? Span{} : lease.layers;
}

bool Seat::is_newcomer(Time now) const {
  return lease.state == LeaseState::kWaiting && is_here && !told && now >= idle_until;
}

bool Seat::may_move(Time now) const {
  const bool can = lease.state == LeaseState::kServing && is_here && !lease.is_fixed;
  return can && !told && now >= idle_until;
}

bool Seat::is_on_move(Time now) const {
  if (told) return moves;
  return lease.state == LeaseState::kLoading && !lease.is_fixed && now - told_at < Placer::kLoading;
}

std::vector<Host> hosts_of(const Seats& seats, Time now) {
  const double median = median_speed(seats);
  // Layers that nobody serves come from files alone: without any, who leaves its own layers to fill
  // a gap would serve nothing.
  const bool anybody_can = num_unserved(seats) == 0 || std::ranges::any_of(seats, [](auto& seat) {
                             return seat.second->is_here && seat.second->lease.has_files;
                           });
  std::vector<Host> hosts;
  for (const auto& [name, seat] : seats) {
    const Lease& lease = seat->lease;
    const double speed = lease.layers_per_s > 0 ? lease.layers_per_s / median : 1;
    hosts.push_back({.speed = std::clamp(speed, 1 / kMostTimesMedian, kMostTimesMedian),
                     .max_layers = lease.max_layers,
                     .layers = seat->layers(),
                     .may_move = anybody_can && seat->may_move(now),
                     .serves = lease.state == LeaseState::kServing && !seat->told});
  }
  return hosts;
}

int32_t num_unserved(const Seats& seats) {
  std::vector<bool> is_served(static_cast<size_t>(num_layers_of(seats)));
  for (const auto& [name, seat] : seats) {
    if (seat->lease.state != LeaseState::kServing) continue;
    const Span& layers = seat->lease.layers;
    std::fill(is_served.begin() + layers.begin, is_served.begin() + layers.end, true);
  }
  return static_cast<int32_t>(std::ranges::count(is_served, false));
}

std::vector<std::string> Placer::give_up(const Seats& seats, Time now) {
  std::vector<std::string> idle;
  for (const auto& [name, seat] : seats) {
    if (!seat->told) continue;
    const bool has_begun =
        seat->lease.state == LeaseState::kLoading || seat->lease.state == LeaseState::kDraining;
    if (now - seat->told_at < (has_begun ? kLoading : kObeying)) continue;
    seat->told.reset();
    seat->idle_until = now + kIdle;
    idle.push_back(name);
  }
  return idle;
}

std::vector<Placer::Order> Placer::decide(const Seats& seats, Time now) {
  const auto num_newcomers = static_cast<size_t>(std::ranges::count_if(
      seats, [&](const auto& seat) { return seat.second->is_newcomer(now); }));
  if (num_newcomers > num_newcomers_) {
    if (num_newcomers_ == 0) first_newcomer_ = now;
    last_newcomer_ = now;
  }
  num_newcomers_ = num_newcomers;
  if (num_newcomers > 0) {
    const bool are_here =
        now - last_newcomer_ >= kGathering || now - first_newcomer_ >= kLongestGathering;
    return are_here ? place(seats, now) : std::vector<Order>();
  }
  const bool one_moves =
      std::ranges::any_of(seats, [&](const auto& seat) { return seat.second->is_on_move(now); });
  return one_moves ? std::vector<Order>() : move(seats, now);
}

std::vector<Placer::Order> Placer::place(const Seats& seats, Time now) {
  Seats present;  // Who leaves, or is told nothing for now, has no layers either, and gets none.
  std::ranges::copy_if(seats, std::inserter(present, present.end()), [&](const auto& entry) {
    return entry.second->is_newcomer(now) || entry.second->layers().size() > 0;
  });
  const std::vector<Span> spans = place_newcomers(hosts_of(present, now), num_layers_of(present));
  std::vector<Order> orders;
  auto layers = spans.begin();
  for (const auto& [name, seat] : present) {
    if (layers->size() > 0) orders.push_back(tell(name, *seat, *layers, "waits", now));
    ++layers;
  }
  num_newcomers_ = 0;
  return orders;
}

std::vector<Placer::Order> Placer::move(const Seats& seats, Time now) {
  const std::vector<Host> hosts = hosts_of(seats, now);
  std::vector<Span> known;
  for (const Host& host : hosts) known.push_back(host.layers);
  if (now < next_balancing_) {
    // Nobody waits for a model's last layers longer than needed.
    const bool is_news = known != known_;
    if (!is_news || num_gaps(flow_of(hosts, num_layers_of(seats))) == 0) return {};
  }
  known_ = std::move(known);
  next_balancing_ = now + kBalancing;
  const std::optional<Move> best = best_move(hosts, num_layers_of(seats));
  if (!best) return {};
  const auto chosen = std::next(seats.begin(), static_cast<std::ptrdiff_t>(best->host));
  const std::string reason = best->fills_gap ? "gap" : "balance";
  return {tell(chosen->first, *chosen->second, best->layers, reason, now)};
}

}  // namespace atl::chain
