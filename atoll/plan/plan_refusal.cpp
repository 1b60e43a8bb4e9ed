#include "atoll/plan/plan_refusal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/progress.h"
#include "atoll/plan/plan.h"

namespace atl::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// No line is looked for beyond this: bits per second.
constexpr double kFastestLine = 1e15;
/// Of what is sent to its time: a time that is simulated may end a little before.
constexpr double kSentShare = 0.9;

std::string rate_text(double bits_per_s) {
  if (bits_per_s >= 1e9) return fmt::format("{:.3g} Gbit/s", bits_per_s / 1e9);
  return fmt::format("{:.3g} Mbit/s", bits_per_s / 1e6);
}

std::string size_text(const PlannedShape& shape) {
  return fmt::format("{} parameters ({} layer{} of {})", format_count(shape.law_params),
                     shape.layers, shape.layers == 1 ? "" : "s", shape.hidden);
}

class NoPlan {
 public:
  NoPlan(const PlanRequest& request, const PlanLoss& loss, Candidates& candidates,
         const PlanSearch& search)
      : request_(request),
        goal_(request.goal),
        loss_(loss),
        candidates_(candidates),
        search_(search) {}

  [[noreturn]] void explain() {
    if (candidates_.ways().empty()) no_law();
    if (candidates_.sizes().empty()) too_few_tokens();
    if (!search_.has_any()) nothing_fits();
    const auto best = search_.lowest_loss({});
    if (!best) too_small_a_run();
    if (goal_.loss && best->loss > *goal_.loss) beyond_reach(*best);
    too_slow();
  }

 private:
  [[noreturn]] void no_law() const {
    std::vector<std::string> known;
    for (size_t replicas = 0; replicas <= kMaxPlannedIslands; ++replicas) {
      if (loss_.has_law(static_cast<double>(replicas))) {
        known.push_back(laws::replicas_name(static_cast<double>(replicas)));
      }
    }
    const size_t count = request_.islands.size();
    throw InputError(fmt::format(
        "no plan: the runs of '{}' give a law of {}, and none for {}, which needs data-parallel "
        "runs or some with {}",
        request_.laws.fit, fmt::join(known, ", "),
        count == 1 ? "1 island" : fmt::format("1 to {} islands", count),
        count == 1 ? "1 replica" : fmt::format("1 to {} replicas", count)));
  }

  [[noreturn]] void too_few_tokens() const {
    const PlannedShape smallest = candidates_.shapes().ladder().front();
    throw InputError(fmt::format(
        "no plan: tokens are short: the smallest model, {}, wants {} times as many as {}; give "
        "more, or fewer 'tokens_per_param', or a smaller 'vocab_size'",
        size_text(smallest),
        fmt::format("{:.3g}",
                    smallest.law_params * candidates_.fewest_tokens_per_param() / *goal_.tokens),
        format_count(*goal_.tokens)));
  }

  /// Not even the smallest, on the islands with the most memory.
  [[noreturn]] void nothing_fits() {
    std::optional<PlanChoice> nearest;
    for (const PlanWay& way : candidates_.ways()) {
      const PlannedSize& smallest = candidates_.sizes().front();
      auto choice = candidates_.choice(smallest, way, candidates_.largest_islands(smallest, way));
      if (!choice || choice->fits()) continue;
      if (!nearest || choice->short_bytes < nearest->short_bytes) nearest = std::move(choice);
    }
    if (!nearest) too_small_a_run();
    out_of_memory(*nearest);
  }

  [[noreturn]] void out_of_memory(const PlanChoice& choice) const {
    const PlannedIsland& island = request_.islands[choice.setup.islands[choice.short_island]];
    const double usable = kUsableMemory * island.memory_bytes;
    const std::string& shard = choice.shards[choice.short_island];
    const bool is_shared = island.devices > 1;
    throw InputError(fmt::format(
        "no plan: memory is short: {}, {}, needs {} on a device of '{}' with {}{}, one row at a "
        "time; of its {} a plan uses {}: {} are missing",
        goal_.params ? "the model" : "the smallest model", size_text(choice.shape),
        format_bytes(usable + choice.short_bytes), island.name, choice.setup.sync.method,
        is_shared ? fmt::format(", train.shard = \"{}\"", shard) : "",
        format_bytes(island.memory_bytes), format_bytes(usable),
        format_bytes(choice.short_bytes / kUsableMemory)));
  }

  [[noreturn]] void too_small_a_run() const {
    throw InputError(
        "no plan: tokens are short: they are fewer than one batch, which has a row for each "
        "device; "
        "give more 'tokens', shorter rows ('sequence_length'), or fewer devices");
  }

  [[noreturn]] void beyond_reach(const PlanChoice& best) const {
    throw InputError(fmt::format("no plan: the loss {:g} is beyond reach: of all that fits into "
                                 "memory{} the lowest is {:.3f}, {} on {} with {:.3g} tokens a "
                                 "parameter",
                                 *goal_.loss, goal_.tokens ? " and tokens" : "", best.loss,
                                 size_text(best.shape), names(best.setup),
                                 best.tokens(goal_) / best.shape.law_params) +
                     in_time());
  }

  /// What could be had instead.
  std::string in_time() const {
    if (!goal_.time_s) return "";
    const auto best = search_.lowest_loss({.time_s = *goal_.time_s});
    if (!best) return "";
    return fmt::format("; within {} {:.3f} is reached, with {}", span_text(*goal_.time_s),
                       best->loss, size_text(best->shape));
  }

  std::string names(const PlanSetup& setup) const { return quoted_names(request_, setup.islands); }

  /// There is a limit of time, and nothing keeps it.
  [[noreturn]] void too_slow() {
    ATOLL_CHECK(goal_.time_s.has_value());
    const PlanBounds wanted{.loss = goal_.loss.value_or(kInfinity)};
    const auto fastest = search_.soonest(wanted);
    if (!fastest) too_small_a_run();
    // What would be in time on better lines.
    std::vector<PlanChoice> others =
        search_.computing_within({.time_s = *goal_.time_s, .loss = wanted.loss});
    std::ranges::sort(others, {}, [](const PlanChoice& choice) {
      return std::pair(choice.total_bytes(), choice.computing_s);
    });
    PlanChoice* nearest = nullptr;
    double least_rate = kInfinity;
    for (PlanChoice& choice : others) {
      if (choice.setup.islands.size() == 1) continue;
      const double sent = *std::ranges::max_element(choice.sent_bytes);
      if (kSentShare * 8 * sent / *goal_.time_s > least_rate) continue;
      const double rate = rate_in_time(choice, least_rate);
      if (rate >= least_rate) continue;
      least_rate = rate;
      nearest = &choice;
    }
    if (nearest != nullptr) too_narrow(*nearest, least_rate);
    throw InputError(fmt::format(
        "no plan: time is short: {} on {} with {}{} takes {}, and there are {}: it needs {:.3g} "
        "times as long{}",
        size_text(fastest->shape), names(fastest->setup), fastest->setup.sync.method,
        goal_.loss ? fmt::format(", the soonest to reach the loss {:g},", *goal_.loss) : "",
        span_text(fastest->wall_clock_s), span_text(*goal_.time_s),
        fastest->wall_clock_s / *goal_.time_s, goal_.loss ? in_time() : ""));
  }

  /// The slowest line with which it would be in time; infinite where none is fast enough, or only
  /// one faster than `most`.
  double rate_in_time(const PlanChoice& choice, double most) const {
    const auto is_in_time = [&](double rate) {
      PlanChoice faster = choice;
      candidates_.time(faster, rate);
      return faster.wall_clock_s <= *goal_.time_s;
    };
    double high = std::min(most, kFastestLine);
    if (!is_in_time(high)) return kInfinity;
    double low = kInfinity;
    for (const LoadedIsland& load : choice.loads) {
      low = std::min({low, load.up_bits_per_s, load.down_bits_per_s});
    }
    while (high / low > 1.005) {
      const double middle = std::sqrt(low * high);
      (is_in_time(middle) ? high : low) = middle;
    }
    return high;
  }

  [[noreturn]] void too_narrow(PlanChoice& choice, double rate) const {
    candidates_.time(choice);
    std::vector<std::string> narrow;
    for (const size_t i : choice.setup.islands) {
      const PlannedIsland& island = request_.islands[i];
      for (const auto& [direction, own] :
           {std::pair("up", island.up_bits_per_s), std::pair("down", island.down_bits_per_s)}) {
        if (own >= rate) continue;
        narrow.push_back(fmt::format("'{}' {}: {} instead of {}", island.name, direction,
                                     rate_text(rate), rate_text(own)));
      }
    }
    throw InputError(fmt::format(
        "no plan: bandwidth is short: {} on {} with {} would compute for {}, but takes {}, as "
        "islands wait for {:.0f} % of their time; within {} they may wait for {:.0f} %, which "
        "needs of links: {}{}",
        size_text(choice.shape), names(choice.setup), choice.setup.sync.method,
        span_text(choice.computing_s), span_text(choice.wall_clock_s),
        100 * (1 - choice.utilisation), span_text(*goal_.time_s),
        100 * (1 - choice.utilisation * choice.wall_clock_s / *goal_.time_s),
        fmt::join(narrow, ", "), goal_.loss ? in_time() : ""));
  }

  const PlanRequest& request_;
  const PlanGoal& goal_;
  const PlanLoss& loss_;
  Candidates& candidates_;
  const PlanSearch& search_;
};

}  // namespace

void refuse_plan(const PlanRequest& request, const PlanLoss& loss, Candidates& candidates,
                 const PlanSearch& search) {
  NoPlan(request, loss, candidates, search).explain();
}

}  // namespace atl::plan
