#include "atoll/chain/route.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace atl::chain {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A pass with one text more takes so much longer.
constexpr double kPerSession = 0.2;
/// Where there is no room other texts have to go first, or this one waits.
constexpr double kFull = 4;
constexpr double kUnknownLayersPerS = 100;
constexpr double kUnknownTokenLayersPerS = 1000;

/// Until a server has read all of a session's tokens through so many layers.
double seconds_of(const Candidate& server, int32_t num_layers, const RouteQuery& query) {
  const double one = server.layers_per_s > 0 ? server.layers_per_s : kUnknownLayersPerS;
  const double many =
      server.token_layers_per_s > 0 ? server.token_layers_per_s : kUnknownTokenLayersPerS;
  const double load = (1 + kPerSession * server.num_sessions) * (server.is_full ? kFull : 1);
  return num_layers * load *
         (static_cast<double>(query.num_prompt) / many +
          static_cast<double>(query.num_answer) / one);
}

}  // namespace

std::optional<std::vector<Hop>> choose_route(std::span<const Candidate> candidates,
                                             const RouteQuery& query) {
  const size_t count = candidates.size();
  // The soonest that each server can be through with its layers, and who is before it. A server is
  // behind those whose layers end further in front, so that one sweep settles all.
  std::vector<double> soonest(count, kNever);
  std::vector<size_t> before(count, count);
  std::vector<int32_t> begins(count, 0);
  const auto end_of = [&](size_t i) {
    return std::min(candidates[i].layers.end, query.layers.end);
  };
  const auto tokens = static_cast<double>(query.num_answer + 1);
  std::vector<size_t> order;
  for (size_t i = 0; i < count; ++i) {
    if (end_of(i) > query.layers.begin) order.push_back(i);
  }
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return end_of(a) != end_of(b) ? end_of(a) < end_of(b)
                                  : candidates[a].address < candidates[b].address;
  });
  const auto offer = [&](size_t i, size_t previous, int32_t begin, double start, double delay) {
    const double time =
        start + delay * tokens + seconds_of(candidates[i], end_of(i) - begin, query);
    if (time >= soonest[i]) return;
    soonest[i] = time;
    before[i] = previous;
    begins[i] = begin;
  };
  for (const size_t i : order) {
    const Candidate& server = candidates[i];
    const bool may_begin = !query.needs_head || server.has_head || !query.from.empty();
    if (server.layers.begin <= query.layers.begin && may_begin) {
      offer(i, count, query.layers.begin, 0, query.delay(query.from, server.address));
    }
    for (const size_t j : order) {
      const int32_t begin = end_of(j);
      if (begin >= end_of(i)) break;
      if (begin < server.layers.begin || soonest[j] == kNever) continue;
      offer(i, j, begin, soonest[j], query.delay(candidates[j].address, server.address));
    }
  }
  size_t best = count;
  double best_time = kNever;
  for (const size_t i : order) {
    const bool may_end = !query.needs_head || candidates[i].has_head || !query.to.empty();
    if (end_of(i) != query.layers.end || soonest[i] == kNever || !may_end) continue;
    const double time = soonest[i] + query.delay(candidates[i].address, query.to) * tokens;
    if (time < best_time) {
      best = i;
      best_time = time;
    }
  }
  if (best == count) return std::nullopt;
  std::vector<Hop> hops;
  for (size_t i = best; i != count; i = before[i]) {
    hops.push_back({.address = candidates[i].address, .layers = {begins[i], end_of(i)}});
  }
  std::ranges::reverse(hops);
  return hops;
}

double seconds_by(std::span<const Hop> route, std::span<const Candidate> candidates,
                  const RouteQuery& query) {
  const auto tokens = static_cast<double>(query.num_answer + 1);
  double time = 0;
  std::string before = query.from;
  for (const Hop& hop : route) {
    const auto server = std::ranges::find(candidates, hop.address, &Candidate::address);
    if (server == candidates.end()) return kNever;
    time +=
        query.delay(before, hop.address) * tokens + seconds_of(*server, hop.layers.size(), query);
    before = hop.address;
  }
  return time + query.delay(before, query.to) * tokens;
}

bool have_heads(std::span<const Candidate> candidates, const Span& layers) {
  const auto has_one_at = [&](int32_t layer) {
    return std::ranges::any_of(candidates, [&](const Candidate& server) {
      return server.has_head && server.layers.holds({layer, layer + 1});
    });
  };
  return has_one_at(layers.begin) && has_one_at(layers.end - 1);
}

Span missing_layers(std::span<const Candidate> candidates, const Span& layers) {
  const auto is_held = [&](int32_t layer) {
    return std::ranges::any_of(candidates, [&](const Candidate& server) {
      return server.layers.holds({layer, layer + 1});
    });
  };
  Span missing{layers.begin, layers.begin};
  while (missing.begin < layers.end && is_held(missing.begin)) ++missing.begin;
  missing.end = missing.begin;
  while (missing.end < layers.end && !is_held(missing.end)) ++missing.end;
  return missing;
}

}  // namespace atl::chain
