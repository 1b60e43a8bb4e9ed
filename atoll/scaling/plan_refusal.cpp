#include "atoll/scaling/plan_refusal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/progress.h"
#include "atoll/scaling/plan.h"

namespace atl::scaling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// No line is looked for beyond this: bits per second.
constexpr double kFastestLine = 1e15;
constexpr double kMuchLarger = 2;

std::string rate_text(double bits_per_s) {
  if (bits_per_s >= 1e9) return fmt::format("{:.3g} Gbit/s", bits_per_s / 1e9);
  return fmt::format("{:.3g} Mbit/s", bits_per_s / 1e6);
}

std::string size_text(const PlannedShape& shape) {
  return fmt::format("{} parameters ({} layers of {})", format_count(shape.law_params),
                     shape.layers, shape.hidden);
}

class NoPlan {
 public:
  NoPlan(const PlanRequest& request, Candidates& candidates)
      : request_(request), goal_(request.goal), candidates_(candidates) {}

  [[noreturn]] void explain() {
    if (candidates_.sizes().empty()) too_few_tokens();
    collect();
    if (choices_.empty()) too_small_a_run();
    if (goal_.loss) require_loss();
    too_slow();
  }

 private:
  [[noreturn]] void too_few_tokens() const {
    const PlannedShape smallest = candidates_.shapes().ladder().front();
    throw InputError(fmt::format(
        "no plan: tokens are short: the smallest model, {}, wants {} times as many as {}; give "
        "more, or fewer 'tokens_per_param', or a smaller 'vocab_size'",
        size_text(smallest),
        fmt::format("{:.3g}", smallest.law_params * candidates_.tokens_per_param() / *goal_.tokens),
        format_count(*goal_.tokens)));
  }

  /// All that memory allows.
  void collect() {
    double least_short = kInfinity;
    std::optional<PlanChoice> nearest;
    bool any = false;
    for (const PlannedShape& shape : candidates_.sizes()) {
      bool fits = false;
      for (const PlanSetup& setup : candidates_.setups()) {
        auto choice = candidates_.choice(shape, setup);
        if (!choice) continue;
        any = true;
        if (choice->fits()) {
          fits = true;
          choices_.push_back(std::move(*choice));
        } else if (choice->short_bytes < least_short) {
          least_short = choice->short_bytes;
          nearest = std::move(choice);
        }
      }
      if (any && !fits) break;  // Nor does a larger one.
    }
    if (choices_.empty() && nearest) out_of_memory(*nearest);
  }

  [[noreturn]] void out_of_memory(const PlanChoice& choice) const {
    const PlannedIsland& island = request_.islands[choice.setup.islands[choice.short_island]];
    const double usable = kUsableMemory * island.memory_bytes;
    throw InputError(fmt::format(
        "no plan: memory is short: {}, {}, needs {} on a device of '{}' with {}, one row at a "
        "time; of its {} a plan uses {}: {} are missing",
        goal_.params ? "the model" : "the smallest model", size_text(choice.shape),
        format_bytes(usable + choice.short_bytes), island.name, choice.setup.sync.method,
        format_bytes(island.memory_bytes), format_bytes(usable), format_bytes(choice.short_bytes)));
  }

  [[noreturn]] void too_small_a_run() const {
    throw InputError(
        "no plan: tokens are short: they are fewer than one batch of the smallest model; give "
        "more 'tokens', shorter rows ('sequence_length'), or fewer devices");
  }

  /// Returns when some size reaches it, if not in time.
  void require_loss() {
    const auto reaches = [&](const PlanChoice& choice) { return choice.loss <= *goal_.loss; };
    const auto best = std::ranges::min_element(choices_, {}, &PlanChoice::loss);
    if (!std::ranges::any_of(choices_, reaches)) {
      throw InputError(fmt::format("no plan: the loss {:g} is beyond reach: of all that fits into "
                                   "memory{} the lowest is "
                                   "{:.3f}, {} on {}",
                                   *goal_.loss, goal_.tokens ? " and tokens" : "", best->loss,
                                   size_text(best->shape), names(best->setup)) +
                       in_time());
    }
    std::erase_if(choices_, [&](const PlanChoice& choice) { return !reaches(choice); });
    // What reaches it with much more than it takes is no sooner there.
    double least = kInfinity;
    for (const PlanChoice& choice : choices_) least = std::min(least, choice.shape.law_params);
    std::erase_if(choices_, [&](const PlanChoice& choice) {
      return choice.shape.law_params > kMuchLarger * least;
    });
  }

  /// What could be had instead.
  std::string in_time() const {
    if (!goal_.time_s) return "";
    PlanRequest other = request_;
    other.goal.loss.reset();
    const auto choices = feasible_choices(other, candidates_);
    if (choices.empty()) return "";
    const PlanChoice& best = choices[recommended_of(other, choices)];
    return fmt::format("; within {} {:.3f} is reached, with {}", span_text(*goal_.time_s),
                       best.loss, size_text(best.shape));
  }

  std::string names(const PlanSetup& setup) const { return quoted_names(request_, setup.islands); }

  /// There is a limit of time, and nothing keeps it.
  [[noreturn]] void too_slow() {
    ATOLL_CHECK(goal_.time_s.has_value());
    PlanChoice* fastest = nullptr;
    PlanChoice* computes = nullptr;  // Would be in time on better lines.
    std::ranges::sort(choices_, {}, &PlanChoice::least_s);
    for (PlanChoice& choice : choices_) {
      if (fastest != nullptr && choice.least_s > fastest->wall_clock_s) continue;
      candidates_.time(choice);
      if (fastest == nullptr || choice.wall_clock_s < fastest->wall_clock_s) fastest = &choice;
    }
    std::ranges::sort(choices_, {}, &PlanChoice::computing_s);
    double least_rate = kInfinity;
    for (PlanChoice& choice : choices_) {
      if (choice.computing_s > *goal_.time_s || choice.setup.islands.size() == 1) continue;
      const double rate = rate_in_time(choice, least_rate);
      if (rate >= least_rate) continue;
      least_rate = rate;
      computes = &choice;
    }
    // Sorting has moved what `fastest` points to.
    fastest = &*std::ranges::min_element(choices_, [](const auto& a, const auto& b) {
      return a.wall_clock_s > 0 && (b.wall_clock_s == 0 || a.wall_clock_s < b.wall_clock_s);
    });
    if (computes != nullptr) too_narrow(*computes, least_rate);
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
  Candidates& candidates_;
  std::vector<PlanChoice> choices_;
};

}  // namespace

void refuse_plan(const PlanRequest& request, Candidates& candidates) {
  NoPlan(request, candidates).explain();
}

}  // namespace atl::scaling
