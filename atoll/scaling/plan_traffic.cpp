#include "atoll/scaling/plan_traffic.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "atoll/codec/codec.h"
#include "atoll/swarm/rules.h"
#include "atoll/sync/fragments.h"
#include "atoll/sync/method.h"
#include "atoll/sync/topology.h"

namespace atl::scaling {
namespace {

constexpr int64_t kShares = 1'000'000;  // Fine enough to be called a share.
constexpr int kPeriods = 3;
constexpr int kEveryStep = 40;
constexpr double kGiga = 1e9;
constexpr double kFastest = 1e18;  // In place of a line without a limit.

collective::Topology topology(const sync::SyncOptions& sync, int num_members) {
  const auto codec = codec::make_codec(sync::codec_name(sync));
  return sync::topology_of(sync, *codec, num_members);
}

}  // namespace

double bits_per_value(const sync::SyncOptions& sync) {
  return codec::make_codec(sync::codec_name(sync))->bits_per_value();
}

std::vector<double> copies_per_round(const sync::SyncOptions& sync, std::span<const double> rates) {
  const auto members = static_cast<int>(rates.size());
  const double others = members - 1;
  if (members == 1) return {0};
  if (topology(sync, members) == collective::Topology::kGather) {
    return std::vector<double>(rates.size(), others);
  }
  std::vector<int64_t> bytes_per_s;
  for (const double rate : rates) {
    bytes_per_s.push_back(std::max<int64_t>(1, std::llround(std::min(rate, kFastest) / 8)));
  }
  // To the owners of all shares but its own, and its own share's mean to all others.
  std::vector<double> copies;
  for (const int64_t share : swarm::shares_by_rate(kShares, bytes_per_s)) {
    const double own = static_cast<double>(share) / static_cast<double>(kShares);
    copies.push_back(1 - own + own * others);
  }
  return copies;
}

double values_exchanged(const sync::SyncOptions& sync, std::span<const model::ParameterSpec> specs,
                        int64_t steps) {
  const double all = static_cast<double>(specs.back().offset + specs.back().size);
  const sync::Method& method = sync::method_of(sync);
  if (method.is_for_one || steps == 0) return 0;
  if (method.syncs_every_step()) return all * static_cast<double>(steps);
  const int64_t every = sync.sync_every;
  if (!method.has_fragments()) {
    return all * std::ceil(static_cast<double>(steps) / static_cast<double>(every));
  }
  double values = all;  // After the last step.
  const auto fragments =
      sync::make_fragments(specs, sync.fragment_pattern, sync::num_fragments(sync));
  const int64_t spacing = every / std::ssize(fragments);
  for (int64_t p = 0; p < std::ssize(fragments); ++p) {
    const int64_t times = std::max<int64_t>(0, (steps - 1 - p * spacing) / every);
    values +=
        static_cast<double>(times) * static_cast<double>(fragments[static_cast<size_t>(p)].size);
  }
  return values;
}

double round_trips(const sync::SyncOptions& sync, int num_members) {
  if (num_members < 2) return 0;
  return topology(sync, num_members) == collective::Topology::kGather ? 2.5 : 3;
}

SimulatedRun simulated_run(double params, int64_t layers, const sync::SyncOptions& sync,
                           std::span<const LoadedIsland> islands) {
  const auto members = static_cast<int>(islands.size());
  const sync::Method& method = sync::method_of(sync);
  Workload work{.params = params,
                .layers = static_cast<int>(layers),
                .method = Method::kDataParallel,
                .sync_every = 1,
                .islands = {}};
  work.steps = kEveryStep;
  if (members > 1 && method.uses("sync_every")) {
    work.method = method.has_fragments() ? Method::kStreamingDiloco : Method::kDiloco;
    work.sync_every = static_cast<int>(sync.sync_every);
    work.steps = kPeriods * work.sync_every + 1;
  }
  if (work.method == Method::kStreamingDiloco) {
    work.fragments = static_cast<int>(sync::num_fragments(sync)) - 1;
    work.delay = static_cast<int>(sync::fragment_sync_delay(sync));
  }
  std::vector<double> rates;
  for (const LoadedIsland& island : islands) {
    rates.push_back(island.bits_per_s);
    work.step_s = std::max(work.step_s, island.step_s);
  }
  // A line that nothing is sent over: one island alone.
  work.bits = members > 1 ? bits_per_value(sync) : 1;
  const std::vector<double> copies = copies_per_round(sync, rates);
  const double trips = round_trips(sync, members);
  using Key = std::tuple<double, double, double>;
  std::vector<Key> seen;
  for (size_t i = 0; i < islands.size(); ++i) {
    const double line =
        members > 1 ? std::min(islands[i].bits_per_s, kFastest) / kGiga / copies[i] : kFastest;
    const SimulatedIsland simulated{.speed = work.step_s / islands[i].step_s,
                                    .up = line,
                                    .down = line,
                                    .latency_s = trips * islands[i].latency_s};
    const Key key{simulated.speed, simulated.up, simulated.latency_s};
    if (std::ranges::count(seen, key) > 0) continue;
    seen.push_back(key);
    work.islands.push_back(simulated);
  }
  return {work};
}

double SimulatedRun::steps_per_s(double factor) const {
  double capacity = 0;
  for (const SimulatedIsland& island : workload.islands) capacity += island.speed;
  // utilisation() is what was computed, a step of each island, over what could have been.
  const double share = utilisation(workload, factor);
  return share * capacity / static_cast<double>(workload.islands.size()) / workload.step_s;
}

}  // namespace atl::scaling
