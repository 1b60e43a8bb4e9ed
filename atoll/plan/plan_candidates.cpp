#include "atoll/plan/plan_candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/method/method.h"
#include "atoll/plan/plan_groups.h"

namespace atl::plan {
namespace {

/// Beside the period that the laws' runs had.
constexpr int64_t kLongerPeriods[] = {100, 300};
constexpr int64_t kMostFragments = 128;    // As sync.num_fragments allows.
constexpr int64_t kLayersPerFragment = 3;  // The papers' choice.
constexpr double kTrips = 3;               // In an exchange, about.
constexpr double kTokenStep = 1.1;         // From one to the next of one size.
constexpr double kNearEnough = 0.1;        // Of ln params.
constexpr double kMuchLonger = 1.25;       // That the next size computes.
/// Computing may take less than all tokens would: part of a batch is left out.
constexpr double kWholeBatches = 0.99;

int64_t largest_divisor(int64_t number, int64_t most) {
  for (int64_t divisor = std::min(number, most); divisor > 1; --divisor) {
    if (number % divisor == 0) return divisor;
  }
  return 1;
}

double replicas_of(const method::SyncOptions& sync, size_t num_islands) {
  return method::method_of(sync).uses("outer_lr") ? static_cast<double>(num_islands) : 0;
}

/// One for each three layers, and the embedding.
int64_t num_fragments(const PlannedShape& shape, const method::SyncOptions& sync) {
  return std::min({1 + std::max<int64_t>(1, shape.layers / kLayersPerFragment), sync.sync_every,
                   kMostFragments});
}

}  // namespace

double PlanSetup::replicas() const { return replicas_of(sync, islands.size()); }

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
              loss.is_published() || request.laws.read.count == laws::Count::kPapers) {
  const std::vector<PlannedIsland>& islands = request_.islands;
  for (size_t count = 1; count <= islands.size(); ++count) add_ways(count);
  add_sizes();
  add_longer();
  add_ladder();
  fastest_first_.resize(islands.size());
  std::iota(fastest_first_.begin(), fastest_first_.end(), size_t{0});
  std::ranges::sort(fastest_first_, {},
                    [&](size_t i) { return std::pair(-islands[i].total_flops_per_s(), i); });
}

void Candidates::add_ways(size_t num_islands) {
  const auto usual = std::max<int64_t>(1, std::llround(loss_.sync_every()));
  const auto add = [&](const char* method, const char* codec, int64_t every) {
    PlanWay way{.num_islands = num_islands, .sync = {}};
    way.sync.method = method;
    way.sync.codec = codec;
    way.sync.sync_every = every;
    way.sync.fragment_sync_delay = std::min(kLongestDelay, every - 1);
    way.replicas = replicas_of(way.sync, num_islands);
    if (!loss_.has_law(way.replicas)) return;
    if (every != usual) way.least_steps = 2 * every;
    for (const PlannedIsland& island : request_.islands) {
      const PlannedMemory kept = method_memory(1, way.sync, static_cast<int>(num_islands),
                                               planned_training(request_, island.is_cpu));
      way.shards.push_back(possible_shards(request_, island, kept));
    }
    ways_.push_back(std::move(way));
  };
  if (num_islands == 1) {
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

void Candidates::add_sizes() {
  const PlanGoal& goal = request_.goal;
  const double ratio = fewest_tokens_per_param();
  if (goal.params) {
    const PlannedShape shape = shapes_.near(*goal.params);
    if (std::abs(std::log(shape.law_params / *goal.params)) > kNearEnough) {
      throw InputError(params_refusal(*goal.params));
    }
    sizes_ = {sized(shape, goal.tokens.value_or(ratio * shape.law_params))};
    return;
  }
  std::vector<PlannedShape> shapes = shapes_.ladder();
  if (goal.tokens) {
    // The nearest may have a little too many.
    for (const double share : {1.0, 0.99, 0.98, 0.96}) {
      shapes.push_back(shapes_.near(share * *goal.tokens / ratio));
    }
    std::erase_if(shapes,
                  [&](const PlannedShape& s) { return s.law_params * ratio > *goal.tokens; });
    std::ranges::sort(shapes, {}, &PlannedShape::law_params);
  }
  for (const PlannedShape& shape : shapes) {
    sizes_.push_back(sized(shape, ratio * shape.law_params));
  }
}

std::string Candidates::params_refusal(double params) const {
  const std::string said = fmt::format("no plan: [goal]: 'params' = {:g} is ", params);
  const std::vector<PlannedShape> shapes = shapes_.ladder();
  const auto above = std::ranges::find_if(
      shapes, [&](const PlannedShape& shape) { return shape.law_params > params; });
  if (above == shapes.begin()) {
    return said + fmt::format(
                      "below the smallest model that is planned, {:.3g} with a vocabulary "
                      "of {} ('vocab_size')",
                      above->law_params, request_.goal.vocab_size);
  }
  if (above == shapes.end()) {
    return said +
           fmt::format("above the largest model that is planned, {:.3g}", shapes.back().law_params);
  }
  return said + fmt::format("between the models that are planned; give {:.3g} or {:.3g}",
                            std::prev(above)->law_params, above->law_params);
}

void Candidates::add_longer() {
  const double most_tokens = request_.goal.tokens.value_or(std::numeric_limits<double>::infinity());
  for (const PlannedSize& size : sizes_) {
    const double most = std::min(most_tokens, most_tokens_per_param() * size.shape.law_params);
    std::vector<PlannedSize>& ladder = longer_.emplace_back();
    double tokens = size.tokens;
    while (tokens < most) {
      tokens = std::min(most, kTokenStep * tokens);
      ladder.push_back(size);
      ladder.back().tokens = tokens;
    }
  }
}

void Candidates::add_ladder() {
  const auto work = [](const PlannedSize& size) { return size.shape.atoll_params * size.tokens; };
  for (size_t i = 0; i < sizes_.size(); ++i) {
    ladder_.push_back(sizes_[i]);
    if (i + 1 == sizes_.size() || work(sizes_[i + 1]) < kMuchLonger * work(sizes_[i])) continue;
    std::ranges::copy_if(longer_[i], std::back_inserter(ladder_), [&](const PlannedSize& longer) {
      return work(longer) < work(sizes_[i + 1]);
    });
  }
}

PlannedSize Candidates::sized(const PlannedShape& shape, double tokens) const {
  const auto config = shapes_.config(shape, request_.goal.sequence_length);
  const auto pass = [&](bool is_cpu) {
    return pass_memory(config, planned_training(request_, is_cpu));
  };
  return {.shape = shape,
          .tokens = tokens,
          .model = size_of(config),
          .gpu_pass = pass(/*is_cpu=*/false),
          .cpu_pass = pass(/*is_cpu=*/true)};
}

double Candidates::loss(const PlannedSize& size, const PlanWay& way) const {
  return loss_.value(size.shape.law_params, way.replicas, size.tokens,
                     static_cast<double>(way.sync.sync_every));
}

/// Of a device with one row at a time; negative where it fits.
double Candidates::missing_bytes(size_t i, const PlannedSize& size, const PlanWay& way) const {
  const PlannedIsland& island = request_.islands[i];
  const double room = kUsableMemory * island.memory_bytes - size.pass(island.is_cpu).bytes(1);
  return least_that_fits(way.shards[i], size.model, room).bytes(size.model) - room;
}

bool Candidates::is_able(size_t i, const PlannedSize& size, const PlanWay& way) const {
  const double least_tokens = static_cast<double>(way.least_steps * request_.goal.sequence_length *
                                                  request_.islands[i].devices) *
                              static_cast<double>(way.num_islands);
  return least_tokens <= size.tokens && missing_bytes(i, size, way) <= 0;
}

size_t Candidates::num_able(const PlannedSize& size, const PlanWay& way) const {
  return static_cast<size_t>(
      std::ranges::count_if(fastest_first_, [&](size_t i) { return is_able(i, size, way); }));
}

double Candidates::least_computing_s(const PlannedSize& size, const PlanWay& way) const {
  size_t found = 0;
  for (const size_t i : fastest_first_) {
    if (!is_able(i, size, way) || ++found < way.num_islands) continue;
    return kWholeBatches * 6 * size.shape.atoll_params * size.tokens /
           static_cast<double>(way.num_islands) / request_.islands[i].total_flops_per_s();
  }
  return std::numeric_limits<double>::infinity();
}

std::vector<std::vector<size_t>> Candidates::groups(const PlannedSize& size, const PlanWay& way,
                                                    double within_s) const {
  const double part = size.tokens / static_cast<double>(way.num_islands);
  const double least_flops_per_s = kWholeBatches * 6 * size.shape.atoll_params * part / within_s;
  // About what one exchange sends; it only says which lines are better.
  const std::vector<double> alike(way.num_islands, 1);
  const bool has_fragments = method::method_of(way.sync).has_fragments();
  const double bits = bits_per_value(way.sync) * copies_per_round(way.sync, alike)[0] *
                      size.shape.atoll_params /
                      static_cast<double>(has_fragments ? num_fragments(size.shape, way.sync) : 1);
  std::vector<RankedIsland> able;
  for (size_t i = 0; i < request_.islands.size(); ++i) {
    const PlannedIsland& island = request_.islands[i];
    if (island.total_flops_per_s() < least_flops_per_s || !is_able(i, size, way)) continue;
    able.push_back({.place = i,
                    .flops_per_s = island.total_flops_per_s(),
                    .line_s = bits / island.bits_per_s() + kTrips * island.latency_s});
  }
  return best_groups(std::move(able), way.num_islands);
}

std::vector<size_t> Candidates::largest_islands(const PlannedSize& size, const PlanWay& way) const {
  std::vector<size_t> order = fastest_first_;
  std::ranges::sort(order, {}, [&](size_t i) { return std::pair(missing_bytes(i, size, way), i); });
  order.resize(way.num_islands);
  std::ranges::sort(order);
  return order;
}

const PlannedSettings& Candidates::settings_of(const PlannedShape& shape, double replicas) {
  const auto [place, is_new] = settings_.try_emplace({shape.law_params, replicas});
  if (is_new) place->second = loss_.settings(shape.law_params, replicas);
  return place->second;
}

const std::vector<double>& Candidates::values_of(const PlannedShape& shape,
                                                 const method::SyncOptions& sync) {
  const auto [place, is_new] =
      values_.try_emplace({shape.layers, shape.hidden, method::num_fragments(sync)});
  if (is_new) {
    const auto config = shapes_.config(shape, request_.goal.sequence_length);
    place->second = values_sent(sync, weights::parameter_specs(config));
  }
  return place->second;
}

double Candidates::fewest_tokens_per_param() const {
  return request_.goal.tokens_per_param.value_or(loss_.tokens_per_param());
}

/// A limit of time, or a loss, is what more tokens are good for: without one nothing ends them.
double Candidates::most_tokens_per_param() const {
  const PlanGoal& goal = request_.goal;
  const bool is_open = !goal.tokens_per_param && !(goal.params && goal.tokens);
  const bool has_limit = goal.time_s || goal.loss;
  return fewest_tokens_per_param() * (is_open && has_limit ? kCheckedTokens : 1);
}

/// An island's rows must be a multiple of it, so that all of them can deal theirs to their
/// processes.
int64_t Candidates::rows_together(const std::vector<size_t>& islands) const {
  constexpr int64_t kMostRows = int64_t{1} << 40;  // No batch has so many.
  int64_t rows = 1;
  for (const size_t i : islands) {
    const int64_t devices = request_.islands[i].devices;
    rows = std::min(kMostRows, rows / std::gcd(rows, devices) * devices);
  }
  return rows;
}

/// The law's batch, or what the fewest steps leave of it, dealt evenly: to the islands, and among
/// the devices of each.
void Candidates::place_rows(PlanChoice& choice, double tokens) const {
  const auto& islands = choice.setup.islands;
  const int64_t together = rows_together(islands);
  const auto row_tokens = static_cast<double>(request_.goal.sequence_length);
  const double row_of_all = row_tokens * static_cast<double>(std::ssize(islands) * together);
  const double wanted = std::round(choice.settings.batch_tokens.value / row_of_all);
  const double most = std::floor(tokens / kFewestSteps / row_of_all);
  const int64_t rows = static_cast<int64_t>(std::max(1.0, std::min(wanted, most))) * together;
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

void Candidates::measure_memory(PlanChoice& choice, const PlannedSize& size,
                                const PlanWay& way) const {
  const auto& islands = choice.setup.islands;
  const int64_t rows = choice.batch_rows / std::ssize(islands);
  struct Device {
    method::TrainOptions train;
    PlannedMemory kept;  // By the method.
  };
  std::array<std::optional<Device>, 2> kinds;  // All GPUs are alike in it, and all CPUs.
  choice.short_bytes = -std::numeric_limits<double>::infinity();
  int64_t most_rows = rows;
  int64_t alike = 0;  // Micro-batches that divide it are dealt whole, as many to each process.
  for (size_t place = 0; place < islands.size(); ++place) {
    const PlannedIsland& island = request_.islands[islands[place]];
    auto& kind = kinds[island.is_cpu ? 1 : 0];
    if (!kind) {
      kind.emplace();
      kind->train = planned_training(request_, island.is_cpu);
      kind->kept = method_memory(size.model.params, choice.setup.sync,
                                 static_cast<int>(islands.size()), kind->train);
    }
    const double usable = kUsableMemory * island.memory_bytes;
    const PassMemory& pass = size.pass(island.is_cpu);
    const double room = usable - pass.bytes(1);
    const PlannedShard& shard = least_that_fits(way.shards[islands[place]], size.model, room);
    kind->train.shard = shard.shard;
    choice.shards.push_back(shard.shard);
    choice.memory.push_back(with_state(kind->kept, size.model, kind->train, island.devices));
    const double left = usable - choice.memory.back().device;
    const double missing = pass.bytes(1) - left;
    if (missing > choice.short_bytes) {
      choice.short_bytes = missing;
      choice.short_island = place;
    }
    const int64_t own = rows / island.devices;
    const double fitting = std::clamp(pass.rows_within(left), 1.0, 1e9);
    most_rows = std::min({most_rows, own, static_cast<int64_t>(fitting)});
    alike = std::gcd(alike, own);
  }
  choice.micro_batch_rows = largest_divisor(alike, most_rows);
  for (size_t place = 0; place < islands.size(); ++place) {
    const PassMemory& pass = size.pass(request_.islands[islands[place]].is_cpu);
    choice.memory[place] = with_rows(choice.memory[place], pass, choice.micro_batch_rows);
  }
}

void Candidates::measure_traffic(PlanChoice& choice) const {
  const method::SyncOptions& sync = choice.setup.sync;
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

std::optional<PlanChoice> Candidates::choice(const PlannedSize& size, const PlanWay& way,
                                             std::vector<size_t> islands) {
  const PlannedShape& shape = size.shape;
  PlanChoice choice{.shape = shape,
                    .setup = {.islands = std::move(islands), .sync = way.sync},
                    .settings = {},
                    .loads = {},
                    .values = {},
                    .shards = {},
                    .memory = {},
                    .sent_bytes = {},
                    .spent = {}};
  const double replicas = choice.setup.replicas();
  choice.settings = settings_of(shape, replicas);
  place_rows(choice, size.tokens);
  method::SyncOptions& sync = choice.setup.sync;
  const double step_tokens =
      static_cast<double>(choice.batch_rows) * static_cast<double>(request_.goal.sequence_length);
  choice.steps = static_cast<int64_t>(std::floor(size.tokens / step_tokens * (1 + 1e-12)));
  if (choice.steps < 1) return std::nullopt;
  const bool has_period = method::method_of(sync).uses("sync_every");
  const auto usual = std::llround(loss_.sync_every());
  if (has_period && sync.sync_every != usual && choice.steps < 2 * sync.sync_every) {
    return std::nullopt;
  }
  if (has_period) sync.outer_lr = choice.settings.outer_lr->value;
  sync.num_fragments = num_fragments(shape, sync);
  choice.loss = loss_.value(shape.law_params, replicas, choice.tokens(request_.goal),
                            static_cast<double>(sync.sync_every));
  choice.values = values_of(shape, sync);
  measure_memory(choice, size, way);
  measure_traffic(choice);
  return choice;
}

void Candidates::time(PlanChoice& choice, double floor_bits_per_s) const {
  std::vector<LoadedIsland> loads = choice.loads;
  for (LoadedIsland& load : loads) {
    load.up_bits_per_s = std::max(load.up_bits_per_s, floor_bits_per_s);
    load.down_bits_per_s = std::max(load.down_bits_per_s, floor_bits_per_s);
  }
  const method::SyncOptions& sync = choice.setup.sync;
  const laws::RunTime time =
      planned_time(planned_rounds(sync, choice.values, choice.steps), sync, loads);
  choice.wall_clock_s = time.wall_clock_s();
  choice.utilisation = time.utilisation();
  choice.spent = time.islands;
}

void Candidates::shorten_delay(PlanChoice& choice) const {
  if (choice.setup.islands.size() == 1) return;
  if (!method::method_of(choice.setup.sync).has_delay()) return;
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

}  // namespace atl::plan
