#include "atoll/chain/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "atoll/base/check.h"

namespace atl::chain {
namespace {

/// Spans that are tried for one host: where a model has very many layers, of few sizes.
constexpr int32_t kMostSpans = 8192;
constexpr int kLongestPlan = 16;  // Moves.
constexpr int kMostPasses = 8;
constexpr double kLeastGain = 0.001;  // Of the sum of 1 / flow, that one move is worth.

void add(std::vector<double>& flow, const Span& layers, double speed) {
  for (int32_t layer = layers.begin; layer < layers.end; ++layer) {
    flow[static_cast<size_t>(layer)] += speed / layers.size();
  }
}

/// What is left of a sum may not be exactly 0 where it should be.
constexpr double kNothing = 1e-9;

struct Score {
  int32_t num_gaps = 0;  // Those that are filled.
  double gain = -std::numeric_limits<double>::infinity();

  bool is_better_than(const Score& other) const {
    if (num_gaps != other.num_gaps) return num_gaps > other.num_gaps;
    // Equal ones differ by rounding; the first of them is taken.
    return gain > other.gain + 1e-9 * std::abs(other.gain);
  }
};

double cost_of(double flow) { return flow > kNothing ? 1 / flow : 0; }

/// Sums over windows of the layers, by prefixes.
class Prefixes {
 public:
  explicit Prefixes(size_t size) : sums_(size + 1) {}
  template <typename Value>
  void fill(const Value& value) {
    for (size_t i = 0; i + 1 < sums_.size(); ++i) sums_[i + 1] = sums_[i] + value(i);
  }
  double of(size_t begin, size_t end) const { return sums_[end] - sums_[begin]; }

 private:
  std::vector<double> sums_;
};

}  // namespace

std::vector<double> flow_of(const std::vector<Host>& hosts, int32_t num_layers) {
  std::vector<double> flow(static_cast<size_t>(num_layers));
  for (const Host& host : hosts) add(flow, host.layers, host.speed);
  return flow;
}

int32_t num_gaps(const std::vector<double>& flow) {
  return static_cast<int32_t>(
      std::ranges::count_if(flow, [](double tokens) { return tokens <= kNothing; }));
}

double bottleneck(const std::vector<double>& flow) {
  const double least = *std::ranges::min_element(flow);
  return least > kNothing ? least : 0;
}

Span best_span(const std::vector<double>& flow, double speed, int32_t max_layers) {
  ATOLL_CHECK(!flow.empty() && speed > 0 && max_layers > 0);
  const auto num_layers = static_cast<int32_t>(flow.size());
  const int32_t most = std::min(max_layers, num_layers);
  const int32_t num_sizes = std::max(1, kMostSpans / num_layers);
  const int32_t stride = (most + num_sizes - 1) / num_sizes;
  Prefixes gaps(flow.size());
  Prefixes before(flow.size());
  Prefixes after(flow.size());
  gaps.fill([&](size_t i) { return flow[i] <= kNothing ? 1.0 : 0.0; });
  before.fill([&](size_t i) { return cost_of(flow[i]); });
  Span best;
  Score highest;
  for (int32_t size = most; size > 0; size -= stride) {  // The longest first: fewer hops.
    after.fill([&](size_t i) { return cost_of(flow[i] + speed / size); });
    for (int32_t begin = 0; begin + size <= num_layers; ++begin) {
      const auto first = static_cast<size_t>(begin);
      const size_t end = first + static_cast<size_t>(size);
      const Score score{.num_gaps = static_cast<int32_t>(gaps.of(first, end)),
                        .gain = before.of(first, end) - after.of(first, end)};
      if (best.size() > 0 && !score.is_better_than(highest)) continue;
      highest = score;
      best = {begin, begin + size};
    }
  }
  return best;
}

std::vector<int32_t> shares(const std::vector<Host>& chain, int32_t num_layers) {
  std::vector<int32_t> sizes(chain.size());
  const auto with_one_more = [&](size_t i) {
    return sizes[i] < chain[i].max_layers ? chain[i].speed / (sizes[i] + 1) : 0;
  };
  for (int32_t layer = 0; layer < num_layers; ++layer) {  // To whom stays the quickest with it.
    size_t next = 0;
    for (size_t i = 1; i < chain.size(); ++i) {
      if (with_one_more(i) > with_one_more(next)) next = i;
    }
    if (with_one_more(next) <= 0) break;
    sizes[next] += 1;
  }
  return sizes;
}

namespace {

using Group = std::vector<size_t>;  // Of hosts, by their place.

int64_t room_of(const std::vector<Host>& hosts, const Group& group, int32_t num_layers) {
  return std::accumulate(group.begin(), group.end(), int64_t{0}, [&](int64_t sum, size_t i) {
    return sum + std::min(hosts[i].max_layers, num_layers);
  });
}

/// As many groups as possible that each have memory for all layers; `newcomers` are in the order of
/// their memory, the largest first. Each goes where there is least so far.
std::vector<Group> whole_chains(const std::vector<Host>& hosts, const Group& newcomers,
                                int32_t num_layers) {
  for (int64_t count = room_of(hosts, newcomers, num_layers) / num_layers; count > 0; --count) {
    std::vector<Group> groups(static_cast<size_t>(count));
    std::vector<int64_t> rooms(groups.size());
    for (const size_t i : newcomers) {
      const auto least = std::ranges::min_element(rooms) - rooms.begin();
      groups[static_cast<size_t>(least)].push_back(i);
      rooms[static_cast<size_t>(least)] += std::min(hosts[i].max_layers, num_layers);
    }
    if (*std::ranges::min_element(rooms) >= num_layers) return groups;
  }
  return {};
}

Group newcomers_of(const std::vector<Host>& hosts) {
  Group newcomers;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (hosts[i].layers.size() == 0) newcomers.push_back(i);
  }
  std::ranges::sort(newcomers, [&](size_t a, size_t b) {
    return std::tuple(-hosts[a].max_layers, -hosts[a].speed, a) <
           std::tuple(-hosts[b].max_layers, -hosts[b].speed, b);
  });
  return newcomers;
}

/// Gives a chain's hosts their shares, one behind the other. Those that get none stay newcomers.
void place_chain(std::vector<Host>& hosts, Group chain, int32_t num_layers) {
  std::ranges::sort(chain);
  std::vector<Host> members;
  for (const size_t i : chain) members.push_back(hosts[i]);
  const std::vector<int32_t> sizes = shares(members, num_layers);
  int32_t begin = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    if (sizes[i] > 0) hosts[chain[i]].layers = {begin, begin + sizes[i]};
    begin += sizes[i];
  }
}

}  // namespace

namespace {

/// How good a placement is.
struct Quality {
  int32_t gaps = 0;
  double bottleneck = 0;
  double cost = 0;

  bool is_worth_moving_from(const Quality& before) const {
    return gaps == 0 && (before.gaps > 0 || bottleneck > before.bottleneck * kWorthMoving);
  }
  bool is_better_than(const Quality& other) const {
    return gaps != other.gaps ? gaps < other.gaps : cost < other.cost;
  }
};

Quality quality_of(const std::vector<double>& flow) {
  Quality quality{.gaps = num_gaps(flow), .bottleneck = bottleneck(flow)};
  for (const double tokens : flow) quality.cost += cost_of(tokens);
  return quality;
}

/// Nobody serves any of these yet: each may still get others, as long as that does good.
void refine(std::vector<Host>& hosts, const Group& newcomers, int32_t num_layers) {
  bool goes_on = true;
  for (int pass = 0; goes_on && pass < kMostPasses; ++pass) {
    goes_on = false;
    for (const size_t i : newcomers) {
      const Quality before = quality_of(flow_of(hosts, num_layers));
      const Span layers = std::exchange(hosts[i].layers, Span{});
      const Host& host = hosts[i];
      std::vector<double> flow = flow_of(hosts, num_layers);
      const Span better = best_span(flow, host.speed, host.max_layers);
      add(flow, better, host.speed);
      const bool is_better = quality_of(flow).is_better_than(before);
      hosts[i].layers = is_better ? better : layers;
      goes_on |= is_better;
    }
  }
}

}  // namespace

std::vector<Span> place_newcomers(const std::vector<Host>& hosts, int32_t num_layers) {
  std::vector<Host> placed = hosts;
  const Group newcomers = newcomers_of(hosts);
  const auto place = [&](size_t i, const std::vector<double>& flow) {
    placed[i].layers = best_span(flow, placed[i].speed, placed[i].max_layers);
  };
  const int32_t gaps_before = num_gaps(flow_of(placed, num_layers));
  if (gaps_before < num_layers) {  // What others begin is made whole first.
    for (const size_t i : newcomers_of(placed)) {
      const std::vector<double> flow = flow_of(placed, num_layers);
      if (num_gaps(flow) == 0) break;
      place(i, flow);
    }
  }
  for (const Group& chain : whole_chains(placed, newcomers_of(placed), num_layers)) {
    place_chain(placed, chain, num_layers);
  }
  for (const size_t i : newcomers_of(placed)) place(i, flow_of(placed, num_layers));
  refine(placed, newcomers, num_layers);
  std::vector<Span> spans(hosts.size());
  for (const size_t i : newcomers) spans[i] = placed[i].layers;
  return spans;
}

namespace {

/// By how many servers each layer is served now.
std::vector<int32_t> served_by(const std::vector<Host>& hosts, int32_t num_layers) {
  std::vector<int32_t> counts(static_cast<size_t>(num_layers));
  for (const Host& host : hosts) {
    if (!host.serves) continue;
    for (int32_t layer = host.layers.begin; layer < host.layers.end; ++layer) {
      counts[static_cast<size_t>(layer)] += 1;
    }
  }
  return counts;
}

bool is_only_server(const Host& host, const std::vector<int32_t>& counts) {
  return std::any_of(counts.begin() + host.layers.begin, counts.begin() + host.layers.end,
                     [](int32_t count) { return count <= 1; });
}

/// The one that does most good, done to `hosts` and `flow`.
std::optional<Move> move_best(std::vector<Host>& hosts, std::vector<double>& flow) {
  const auto num_layers = static_cast<int32_t>(flow.size());
  const Quality before = quality_of(flow);
  const std::vector<int32_t> counts = served_by(hosts, num_layers);
  std::optional<Move> best;
  Quality highest = before;
  highest.cost *= 1 - kLeastGain;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const Host& host = hosts[i];
    if (!host.may_move || (before.gaps == 0 && is_only_server(host, counts))) continue;
    std::vector<double> without = flow;
    add(without, host.layers, -host.speed);
    const Span layers = best_span(without, host.speed, host.max_layers);
    if (layers == host.layers) continue;
    add(without, layers, host.speed);
    const Quality quality = quality_of(without);
    if (!quality.is_better_than(highest)) continue;
    highest = quality;
    best = Move{.host = i, .layers = layers, .fills_gap = before.gaps > 0};
  }
  if (best) {
    hosts[best->host].layers = best->layers;
    flow = flow_of(hosts, num_layers);
  }
  return best;
}

/// Of a model that cannot be used: the first change that is needed so that from the first layer to
/// the last each host begins where another ends. Whoever has a layer already stays with it if that
/// can be; so what is right from the left stays, and a few changes do it.
std::optional<Move> mend(const std::vector<Host>& hosts, int32_t num_layers) {
  std::vector<bool> is_used(hosts.size());
  std::optional<Move> first;
  for (int32_t next = 0; next < num_layers;) {
    std::optional<size_t> best;
    Span reach;
    bool stays = false;
    for (size_t i = 0; i < hosts.size(); ++i) {
      const Host& host = hosts[i];
      const bool has_it = host.layers.begin <= next && next < host.layers.end;
      if (is_used[i] || (!has_it && !host.may_move)) continue;
      const int32_t end =
          host.may_move ? std::min(num_layers, next + host.max_layers) : host.layers.end;
      if (best && (stays > has_it || (stays == has_it && reach.end >= end))) continue;
      best = i;
      stays = has_it;
      reach = {end - std::min(host.max_layers, end), end};
      if (!host.may_move) reach = host.layers;
    }
    if (!best) return std::nullopt;  // There is not enough memory.
    is_used[*best] = true;
    const bool is_there = hosts[*best].layers.end >= reach.end && stays;
    if (!first && !is_there) first = Move{.host = *best, .layers = reach, .fills_gap = true};
    next = reach.end;
  }
  return first;
}

}  // namespace

std::optional<Move> best_move(std::vector<Host> hosts, int32_t num_layers) {
  std::vector<double> flow = flow_of(hosts, num_layers);
  const Quality before = quality_of(flow);
  const std::vector<Host> unmoved = before.gaps > 0 ? hosts : std::vector<Host>();
  std::optional<Move> first;
  for (int i = 0; i < kLongestPlan; ++i) {
    std::optional<Move> move = move_best(hosts, flow);
    if (!move) break;
    if (!first) first = move;
    if (quality_of(flow).is_worth_moving_from(before)) return first;
  }
  return before.gaps > 0 ? mend(unmoved, num_layers) : std::nullopt;
}

}  // namespace atl::chain
