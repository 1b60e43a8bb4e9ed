#include "atoll/plan/plan_traffic.h"

#include <algorithm>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/codec/codec.h"
#include "atoll/method/fragments.h"
#include "atoll/method/method.h"
#include "atoll/method/topology.h"
#include "atoll/swarm/rules.h"

namespace atl::plan {
namespace {

constexpr int64_t kShares = 1'000'000;  // Fine enough to be called a share.
constexpr double kGiga = 1e9;
constexpr double kFastest = 1e18;  // In place of a line without a limit.

bool gathers(const method::SyncOptions& sync, size_t num_members) {
  const auto codec = codec::make_codec(method::codec_name(sync));
  return method::topology_of(sync, *codec, static_cast<int>(num_members)) ==
         collective::Topology::kGather;
}

/// Of a round of one value, for each island.
std::vector<double> bits_sent(const method::SyncOptions& sync,
                              std::span<const LoadedIsland> islands) {
  std::vector<double> rates;
  for (const LoadedIsland& island : islands) rates.push_back(island.up_bits_per_s);
  std::vector<double> bits = copies_per_round(sync, rates);
  for (double& each : bits) each *= bits_per_value(sync);
  return bits;
}

double slowest_step_s(std::span<const LoadedIsland> islands) {
  return std::ranges::max(islands, {}, &LoadedIsland::step_s).step_s;
}

}  // namespace

double bits_per_value(const method::SyncOptions& sync) {
  return codec::make_codec(method::codec_name(sync))->bits_per_value();
}

std::vector<double> copies_per_round(const method::SyncOptions& sync,
                                     std::span<const double> rates) {
  const double others = static_cast<double>(rates.size()) - 1;
  if (rates.size() == 1) return {0};
  if (gathers(sync, rates.size())) return std::vector<double>(rates.size(), others);
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

std::vector<double> values_sent(const method::SyncOptions& sync,
                                std::span<const weights::ParameterSpec> specs) {
  std::vector<double> values;
  for (const method::Fragment& fragment :
       method::make_fragments(specs, sync.fragment_pattern, method::num_fragments(sync))) {
    values.push_back(static_cast<double>(fragment.size));
  }
  return values;
}

double PlannedRounds::values() const {
  double sum = 0;
  for (const PlannedRound& round : rounds) sum += round.values * static_cast<double>(round.times);
  return sum;
}

PlannedRounds planned_rounds(const method::SyncOptions& sync, std::span<const double> values,
                             int64_t steps) {
  PlannedRounds out{.steps = steps, .rounds = {}, .again = {}};
  if (method::method_of(sync).is_for_one) return out;
  const int64_t every = method::period(sync);
  const int64_t delay = method::fragment_sync_delay(sync);
  const int64_t spacing = every / std::ssize(values);  // As method::FragmentSchedule has it.
  // The second period stands for all that are over before the last step.
  out.again = {.after = every,
               .every = every,
               .times = std::max<int64_t>(0, (steps - 1 - delay) / every - 2)};
  const int64_t repeated_until = (2 + out.again.times) * every;
  const auto add = [&](int64_t period, size_t p) {
    const int64_t step = period * every + static_cast<int64_t>(p) * spacing;
    const bool is_repeated = step > every && step <= 2 * every;
    if (step >= steps || (step > 2 * every && step <= repeated_until)) return;
    out.rounds.push_back({.sent_after = step,
                          .used_after = std::min(step + delay, steps),
                          .values = values[p],
                          .times = is_repeated ? 1 + out.again.times : 1});
  };
  const auto add_period = [&](int64_t period) {
    for (size_t p = 0; p < values.size(); ++p) add(period, p);
  };
  add_period(1);
  add(2, 0);
  // Of the period that the repetition ends in, what is behind it.
  for (size_t p = 1; p < values.size(); ++p) add(2 + out.again.times, p);
  for (int64_t k = 3 + out.again.times; k * every < steps; ++k) add_period(k);
  for (const double each : values) {
    out.rounds.push_back({.sent_after = steps, .used_after = steps, .values = each});
  }
  return out;
}

laws::RecordedRun planned_run(const PlannedRounds& rounds, const method::SyncOptions& sync,
                              std::span<const LoadedIsland> islands) {
  ATOLL_CHECK(islands.size() >= 2, "one island sends nothing");
  laws::RecordedRun run{.islands = {}, .rounds = {}, .again = rounds.again};
  for (const LoadedIsland& island : islands) {
    const double computing_s = island.step_s * static_cast<double>(rounds.steps);
    run.islands.push_back(
        {.name = {}, .marks = {{}, {.step = rounds.steps, .spent = {.computing_s = computing_s}}}});
  }
  const std::vector<double> bits = bits_sent(sync, islands);
  const bool is_gathered = gathers(sync, islands.size());
  for (const PlannedRound& planned : rounds.rounds) {
    laws::RecordedRound& round = run.rounds.emplace_back();
    round.sent_after = planned.sent_after;
    round.gathers = is_gathered;
    for (size_t i = 0; i < islands.size(); ++i) {
      const double bytes = bits[i] * planned.values / 8;
      round.parts.push_back({.island = i,
                             .used_after = planned.used_after,
                             .sent_bytes = bytes,
                             .received_bytes = bytes});
    }
  }
  return run;
}

std::vector<laws::SimulatedIsland> planned_lines(std::span<const LoadedIsland> islands) {
  std::vector<laws::SimulatedIsland> lines;
  for (const LoadedIsland& island : islands) {
    lines.push_back({.up = laws::kPayloadShare * island.up_bits_per_s / kGiga,
                     .down = laws::kPayloadShare * island.down_bits_per_s / kGiga,
                     .latency_s = island.latency_s / 2});
  }
  return lines;
}

laws::RunTime planned_time(const PlannedRounds& rounds, const method::SyncOptions& sync,
                           std::span<const LoadedIsland> islands) {
  if (islands.size() > 1) {
    return laws::simulate(planned_run(rounds, sync, islands), planned_lines(islands), 1);
  }
  const double computing_s = islands[0].step_s * static_cast<double>(rounds.steps);
  return {.islands = {{.computing_s = computing_s}}};
}

double least_time(const PlannedRounds& rounds, const method::SyncOptions& sync,
                  std::span<const LoadedIsland> islands) {
  constexpr double kRounding = 1 - 1e-9;  // Sums of a simulation are not in this order.
  const double step_s = slowest_step_s(islands);
  const double computing_s = step_s * static_cast<double>(rounds.steps);
  if (islands.size() == 1) return computing_s;
  double waited_for = 0;
  for (const PlannedRound& round : rounds.rounds) {
    if (round.is_waited_for()) waited_for += round.values * static_cast<double>(round.times);
  }
  const double first_s = step_s * static_cast<double>(rounds.rounds.front().sent_after);
  const double all = rounds.values();
  const std::vector<double> bits = bits_sent(sync, islands);
  double least_s = computing_s;
  for (size_t i = 0; i < islands.size(); ++i) {
    const LoadedIsland& island = islands[i];
    const double rate =
        laws::kPayloadShare * std::min(island.up_bits_per_s, island.down_bits_per_s);
    least_s = std::max(
        {least_s, computing_s + waited_for * bits[i] / rate, first_s + all * bits[i] / rate});
  }
  return kRounding * least_s;
}

}  // namespace atl::plan
