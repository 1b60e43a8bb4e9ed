#include "atoll/scaling/plan_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "atoll/sync/method.h"

namespace atl::scaling {
namespace {

/// Beside the period that the laws' runs had.
constexpr int64_t kLongerPeriods[] = {100, 300};
constexpr int64_t kMostFragments = 128;    // As sync.num_fragments allows.
constexpr int64_t kLayersPerFragment = 3;  // The papers' choice.
/// Up to so many islands all groups are tried, beyond it those that an order makes.
constexpr size_t kFewIslands = 4;

/// Whom the value puts first, for each length; of equal ones the first.
void add_prefixes(const std::vector<double>& values, std::set<std::vector<size_t>>& groups) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(-values[i], i); });
  for (size_t size = 1; size <= order.size(); ++size) {
    std::vector<size_t> group(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(size));
    std::ranges::sort(group);
    groups.insert(std::move(group));
  }
}

int64_t largest_divisor(int64_t number, int64_t most) {
  for (int64_t divisor = std::min(number, most); divisor > 1; --divisor) {
    if (number % divisor == 0) return divisor;
  }
  return 1;
}

}  // namespace

double PlanSetup::replicas() const {
  return sync::method_of(sync).uses("outer_lr") ? static_cast<double>(islands.size()) : 0;
}

double PlanChoice::tokens(const PlanGoal& goal) const {
  return static_cast<double>(steps) * static_cast<double>(batch_rows) *
         static_cast<double>(goal.sequence_length);
}

double PlanChoice::total_bytes() const {
  return std::accumulate(sent_bytes.begin(), sent_bytes.end(), 0.0);
}

Candidates::Candidates(const PlanRequest& request, const PlanLoss& loss)
    : request_(request),
      loss_(loss),
      shapes_(request.goal.vocab_size,
              loss.is_published() || request.laws.read.count == Count::kPapers) {
  for (const auto& islands : island_groups()) add_setups(islands);
  const PlanGoal& goal = request_.goal;
  if (goal.params) {
    sizes_ = {shapes_.near(*goal.params)};
    return;
  }
  sizes_ = shapes_.ladder();
  if (!goal.tokens) return;
  const double ratio = tokens_per_param();
  // The nearest may have a little too many.
  for (const double share : {1.0, 0.99, 0.98, 0.96}) {
    sizes_.push_back(shapes_.near(share * *goal.tokens / ratio));
  }
  std::erase_if(sizes_, [&](const PlannedShape& s) { return s.law_params * ratio > *goal.tokens; });
  std::ranges::sort(sizes_, {}, &PlannedShape::law_params);
}

/// Islands that are alike stand for each other: of groups that differ in nothing one is kept.
std::vector<std::vector<size_t>> Candidates::island_groups() const {
  const std::vector<PlannedIsland>& islands = request_.islands;
  std::set<std::vector<size_t>> groups;
  if (islands.size() <= kFewIslands) {
    for (size_t bits = 1; bits < (size_t{1} << islands.size()); ++bits) {
      std::vector<size_t> group;
      for (size_t i = 0; i < islands.size(); ++i) {
        if ((bits >> i & 1) != 0) group.push_back(i);
      }
      groups.insert(std::move(group));
    }
  } else {
    const auto by = [&](const auto& value) {
      std::vector<double> values;
      for (const PlannedIsland& island : islands) values.push_back(value(island));
      add_prefixes(values, groups);
    };
    by([](const PlannedIsland& island) { return island.total_flops_per_s(); });
    by([](const PlannedIsland& island) { return island.bits_per_s(); });
    by([](const PlannedIsland& island) { return -island.latency_s; });
    by([](const PlannedIsland& island) { return island.memory_bytes; });
  }
  using Kind = std::tuple<int64_t, double, bool, double, double, double>;
  std::set<std::vector<Kind>> seen;
  std::vector<std::vector<size_t>> out;
  for (const auto& group : groups) {
    std::vector<Kind> kinds;
    for (const size_t i : group) {
      const PlannedIsland& island = islands[i];
      kinds.emplace_back(island.devices, island.flops_per_s, island.is_cpu, island.memory_bytes,
                         island.bits_per_s(), island.latency_s);
    }
    std::ranges::sort(kinds);
    if (seen.insert(std::move(kinds)).second) out.push_back(group);
  }
  return out;
}

void Candidates::add_setups(const std::vector<size_t>& islands) {
  const auto add = [&](const char* method, const char* codec, int64_t every) {
    PlanSetup setup{.islands = islands, .sync = {}};
    setup.sync.method = method;
    setup.sync.codec = codec;
    setup.sync.sync_every = every;
    setup.sync.fragment_sync_delay = std::min(kLongestDelay, every - 1);
    if (loss_.has_law(setup.replicas())) setups_.push_back(std::move(setup));
  };
  const auto usual = std::max<int64_t>(1, std::llround(loss_.sync_every()));
  if (islands.size() == 1) {
    add("single", "default", usual);
    add("diloco", "fp32", usual);
    return;
  }
  add("data_parallel", "bf16", usual);
  std::vector<int64_t> periods = {usual};
  for (const int64_t longer : kLongerPeriods) {
    if (longer > usual) periods.push_back(longer);
  }
  for (const int64_t every : periods) {
    add("diloco", "bf16", every);
    if (every >= 2) add("streaming_diloco", "e3m0", every);
  }
}

const std::vector<double>& Candidates::values_of(const PlannedShape& shape,
                                                 const sync::SyncOptions& sync) {
  const auto [place, is_new] =
      values_.try_emplace({shape.layers, shape.hidden, sync::num_fragments(sync)});
  if (is_new) {
    const auto config = shapes_.config(shape, request_.goal.sequence_length);
    place->second = values_sent(sync, model::parameter_specs(config));
  }
  return place->second;
}

double Candidates::tokens_per_param() const {
  return request_.goal.tokens_per_param.value_or(loss_.tokens_per_param());
}

double Candidates::tokens_for(const PlannedShape& shape) const {
  const PlanGoal& goal = request_.goal;
  if (goal.params && goal.tokens) return *goal.tokens;
  return shape.law_params * tokens_per_param();
}

/// The law's batch, dealt evenly: to the islands, and among the devices of each.
void Candidates::place_rows(PlanChoice& choice) const {
  const auto& islands = choice.setup.islands;
  int64_t devices = 1;
  for (const size_t i : islands) devices = std::max(devices, request_.islands[i].devices);
  const auto row_tokens = static_cast<double>(request_.goal.sequence_length);
  const double per_device = choice.settings.batch_tokens.value / row_tokens /
                            static_cast<double>(islands.size()) / static_cast<double>(devices);
  const int64_t rows = std::max<int64_t>(1, std::llround(per_device)) * devices;
  choice.batch_rows = rows * std::ssize(islands);
  const double flops = 6 * choice.shape.atoll_params * static_cast<double>(rows) * row_tokens;
  for (const size_t i : islands) {
    const PlannedIsland& island = request_.islands[i];
    choice.loads.push_back({.step_s = flops / island.total_flops_per_s(),
                            .up_bits_per_s = island.up_bits_per_s,
                            .down_bits_per_s = island.down_bits_per_s,
                            .latency_s = island.latency_s});
  }
}

void Candidates::measure_memory(PlanChoice& choice) const {
  const auto& islands = choice.setup.islands;
  const int64_t rows = choice.batch_rows / std::ssize(islands);
  const auto config = shapes_.config(choice.shape, request_.goal.sequence_length);
  choice.short_bytes = -std::numeric_limits<double>::infinity();
  int64_t most_rows = rows;
  std::vector<double> row_bytes;
  for (size_t place = 0; place < islands.size(); ++place) {
    const PlannedIsland& island = request_.islands[islands[place]];
    const auto memory = planned_memory(choice.shape.atoll_params, choice.setup.sync,
                                       static_cast<int>(islands.size()), island.is_cpu);
    row_bytes.push_back(activation_bytes(config, request_.goal.sequence_length, island.is_cpu));
    const double usable = kUsableMemory * island.memory_bytes;
    const double missing = with_rows(memory, row_bytes.back(), 1).device - usable;
    if (missing > choice.short_bytes) {
      choice.short_bytes = missing;
      choice.short_island = place;
    }
    const double more = std::floor(std::max(0.0, -missing) / row_bytes.back());
    const int64_t own = (rows + island.devices - 1) / island.devices;
    most_rows = std::min({most_rows, own, 1 + static_cast<int64_t>(std::min(more, 1e9))});
    choice.memory.push_back(memory);
  }
  choice.micro_batch_rows = largest_divisor(rows, most_rows);
  for (size_t place = 0; place < islands.size(); ++place) {
    choice.memory[place] =
        with_rows(choice.memory[place], row_bytes[place], choice.micro_batch_rows);
  }
}

void Candidates::measure_traffic(PlanChoice& choice) const {
  const sync::SyncOptions& sync = choice.setup.sync;
  std::vector<double> rates;
  double slowest_s = 0;
  for (const LoadedIsland& load : choice.loads) {
    rates.push_back(load.up_bits_per_s);
    slowest_s = std::max(slowest_s, load.step_s);
  }
  choice.computing_s = slowest_s * static_cast<double>(choice.steps);
  const PlannedRounds rounds = planned_rounds(sync, choice.values, choice.steps);
  choice.least_s = least_time(rounds, sync, choice.loads);
  const double bytes = bits_per_value(sync) * rounds.values() / 8;
  for (const double copies : copies_per_round(sync, rates)) {
    choice.sent_bytes.push_back(bytes * copies);
  }
}

std::optional<PlanChoice> Candidates::choice(const PlannedShape& shape, const PlanSetup& setup) {
  PlanChoice choice{.shape = shape,
                    .setup = setup,
                    .settings = {},
                    .loads = {},
                    .values = {},
                    .memory = {},
                    .sent_bytes = {},
                    .spent = {}};
  const double replicas = setup.replicas();
  choice.settings = loss_.settings(shape.law_params, replicas);
  place_rows(choice);
  sync::SyncOptions& sync = choice.setup.sync;
  const double step_tokens =
      static_cast<double>(choice.batch_rows) * static_cast<double>(request_.goal.sequence_length);
  choice.steps = static_cast<int64_t>(std::floor(tokens_for(shape) / step_tokens * (1 + 1e-12)));
  if (choice.steps < 1) return std::nullopt;
  const bool has_period = sync::method_of(sync).uses("sync_every");
  const auto usual = std::llround(loss_.sync_every());
  if (has_period && sync.sync_every != usual && choice.steps < 2 * sync.sync_every) {
    return std::nullopt;
  }
  if (has_period) sync.outer_lr = choice.settings.outer_lr->value;
  sync.num_fragments = std::min({1 + std::max<int64_t>(1, shape.layers / kLayersPerFragment),
                                 sync.sync_every, kMostFragments});
  choice.loss = loss_.value(shape.law_params, replicas, choice.tokens(request_.goal),
                            static_cast<double>(sync.sync_every));
  choice.values = values_of(shape, sync);
  measure_memory(choice);
  measure_traffic(choice);
  return choice;
}

void Candidates::time(PlanChoice& choice, double floor_bits_per_s) const {
  std::vector<LoadedIsland> loads = choice.loads;
  for (LoadedIsland& load : loads) {
    load.up_bits_per_s = std::max(load.up_bits_per_s, floor_bits_per_s);
    load.down_bits_per_s = std::max(load.down_bits_per_s, floor_bits_per_s);
  }
  const sync::SyncOptions& sync = choice.setup.sync;
  const RunTime time = planned_time(planned_rounds(sync, choice.values, choice.steps), sync, loads);
  choice.wall_clock_s = time.wall_clock_s();
  choice.utilisation = time.utilisation();
  choice.spent = time.islands;
}

void Candidates::shorten_delay(PlanChoice& choice) const {
  if (choice.setup.islands.size() == 1) return;
  if (!sync::method_of(choice.setup.sync).has_delay()) return;
  const double limit =
      std::min(1.01 * choice.wall_clock_s,
               request_.goal.time_s.value_or(std::numeric_limits<double>::infinity()));
  for (int64_t delay = 1; delay < choice.setup.sync.fragment_sync_delay; ++delay) {
    PlanChoice shorter = choice;
    shorter.setup.sync.fragment_sync_delay = delay;
    time(shorter);
    if (shorter.wall_clock_s > limit) continue;
    choice = std::move(shorter);
    return;
  }
}

}  // namespace atl::scaling
