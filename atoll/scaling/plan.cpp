#include "atoll/scaling/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "atoll/scaling/plan_refusal.h"
#include "atoll/sync/method.h"

namespace atl::scaling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kMostChoices = 8;
/// Sizes further apart than this are no alternatives for one and the same plan.
constexpr double kSizeRange = 20;
/// Without a limit of time: so much more loss for an earlier end.
constexpr double kCloseLoss = 1.01;

using Values = std::array<double, 3>;

/// Smaller is better in each.
Values values_of(const PlanChoice& choice) {
  return {choice.loss, choice.wall_clock_s, choice.total_bytes()};
}

bool dominates(const Values& a, const Values& b) {
  return a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2];
}

/// Adds what of one size keeps the limits.
class Search {
 public:
  Search(const PlanRequest& request, Candidates& candidates)
      : goal_(request.goal), candidates_(candidates) {}

  void add(const PlannedShape& shape) {
    std::vector<PlanChoice> fresh;
    for (const PlanSetup& setup : candidates_.setups()) {
      auto choice = candidates_.choice(shape, setup);
      if (!choice || !choice->fits() || choice->least_s > limit()) continue;
      if (goal_.loss && choice->loss > *goal_.loss) continue;
      fresh.push_back(std::move(*choice));
    }
    std::ranges::sort(fresh, {}, [](const PlanChoice& choice) {
      return std::tuple(choice.loss, choice.least_s, choice.total_bytes());
    });
    for (PlanChoice& choice : fresh) {
      const Values least = {choice.loss, choice.least_s, choice.total_bytes()};
      if (std::ranges::any_of(found_, [&](const PlanChoice& other) {
            return dominates(values_of(other), least);
          })) {
        continue;
      }
      candidates_.time(choice);
      if (choice.wall_clock_s > limit()) continue;
      candidates_.shorten_delay(choice);
      found_.push_back(std::move(choice));
    }
  }

  bool has_found() const { return !found_.empty(); }
  std::vector<PlanChoice> take() { return std::move(found_); }

 private:
  double limit() const { return goal_.time_s.value_or(kInfinity); }

  const PlanGoal& goal_;
  Candidates& candidates_;
  std::vector<PlanChoice> found_;
};

std::vector<PlanChoice> without_dominated(const std::vector<PlanChoice>& choices) {
  std::vector<PlanChoice> kept;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Values own = values_of(choices[i]);
    bool is_kept = true;
    for (size_t k = 0; k < choices.size() && is_kept; ++k) {
      const Values other = values_of(choices[k]);
      // Of equal ones the first stays.
      if (k != i && dominates(other, own)) is_kept = other == own && i < k;
    }
    if (is_kept) kept.push_back(choices[i]);
  }
  return kept;
}

/// Those furthest apart, the recommended one among them.
std::vector<PlanChoice> handful(std::vector<PlanChoice> choices, const PlanChoice& recommended) {
  Values low;
  Values high;
  low.fill(kInfinity);
  high.fill(-kInfinity);
  const auto place = [](const PlanChoice& choice) {
    return Values{std::log(choice.loss), std::log(choice.wall_clock_s),
                  std::log1p(choice.total_bytes())};
  };
  for (const PlanChoice& choice : choices) {
    for (size_t axis = 0; axis < low.size(); ++axis) {
      low[axis] = std::min(low[axis], place(choice)[axis]);
      high[axis] = std::max(high[axis], place(choice)[axis]);
    }
  }
  const auto distance = [&](const PlanChoice& a, const PlanChoice& b) {
    double sum = 0;
    for (size_t axis = 0; axis < low.size(); ++axis) {
      const double range = high[axis] - low[axis];
      if (range <= 0) continue;
      const double apart = (place(a)[axis] - place(b)[axis]) / range;
      sum += apart * apart;
    }
    return sum;
  };
  std::vector<PlanChoice> chosen = {recommended};
  std::erase_if(choices,
                [&](const PlanChoice& c) { return values_of(c) == values_of(recommended); });
  while (chosen.size() < kMostChoices && !choices.empty()) {
    const auto furthest = std::ranges::max_element(choices, {}, [&](const PlanChoice& choice) {
      double nearest = kInfinity;
      for (const PlanChoice& other : chosen) nearest = std::min(nearest, distance(choice, other));
      return nearest;
    });
    chosen.push_back(*furthest);
    choices.erase(furthest);
  }
  return chosen;
}

std::string rule_of(const PlanGoal& goal) {
  if (goal.loss) return fmt::format("It is the soonest to reach the loss {:g}", *goal.loss);
  if (goal.time_s) {
    return fmt::format("It has the lowest predicted loss of all that end within {}",
                       span_text(*goal.time_s));
  }
  return "It ends soonest of all whose predicted loss is within 1 % of the lowest";
}

/// Of the islands that are left out, and of what waiting costs.
std::string why_of(const PlanRequest& request, const Candidates& candidates,
                   const PlanChoice& choice) {
  std::string why = rule_of(request.goal);
  std::vector<size_t> others;
  for (size_t i = 0; i < request.islands.size(); ++i) {
    if (std::ranges::count(choice.setup.islands, i) == 0) others.push_back(i);
  }
  if (others.empty()) {
    why += choice.setup.islands.size() > 1 ? "; all islands take part." : ".";
  } else {
    constexpr size_t kFewNames = 6;
    const std::string who = others.size() <= kFewNames ? quoted_names(request, others)
                                                       : fmt::format("{} islands", others.size());
    why += fmt::format("; {} would not make it better and {} left out.", who,
                       others.size() == 1 ? "is" : "are");
  }
  if (choice.setup.islands.size() == 1) return why;
  PlanChoice every_step = choice;
  every_step.setup.sync = {};
  every_step.setup.sync.method = "data_parallel";
  every_step.setup.sync.codec = "bf16";
  every_step.values = {choice.shape.atoll_params};
  candidates.time(every_step);
  if (choice.setup.sync.method != "data_parallel") {
    why += fmt::format(
        " Over these links {} computes for {:.1f} % of the time, data_parallel would for {:.2g} %.",
        choice.setup.sync.method, 100 * choice.utilisation, 100 * every_step.utilisation);
  }
  return why;
}

void add_notes(const PlanRequest& request, const PlannedRun& run, std::vector<std::string>& notes) {
  const PlanChoice& choice = run.choice;
  if (!run.loss.extrapolation.empty()) notes.push_back("extrapolated: " + run.loss.extrapolation);
  const double batch = static_cast<double>(choice.batch_rows * request.goal.sequence_length);
  const Interval& law = choice.settings.batch_tokens;
  if (batch > law.high || batch < law.low) {
    notes.push_back(fmt::format(
        "the batch, {:.3g} tokens, lies outside the law's range, {:.3g} to {:.3g}: each device "
        "has at least a row",
        batch, law.low, law.high));
  }
  const double limit_s = request.goal.time_s.value_or(0);
  if (!request.goal.loss && !request.goal.params && choice.wall_clock_s < 0.8 * limit_s) {
    notes.push_back(fmt::format(
        "{}, not time, limits the size: {} of {} are used; more 'tokens_per_param' would lower the "
        "loss further",
        request.goal.tokens ? "memory or tokens" : "memory", span_text(choice.wall_clock_s),
        span_text(limit_s)));
  }
  double fastest = kInfinity;
  double slowest = 0;
  for (const LoadedIsland& load : choice.loads) {
    fastest = std::min(fastest, load.step_s);
    slowest = std::max(slowest, load.step_s);
  }
  if (slowest > 1.05 * fastest) {
    notes.push_back(fmt::format(
        "the slowest island takes {:.2g} times as long for a step as the fastest, and all wait for "
        "it; with swarm.pace = \"elastic\" nobody does, but no law says its loss",
        slowest / fastest));
  }
  const bool shares = std::ranges::any_of(choice.setup.islands,
                                          [&](size_t i) { return request.islands[i].devices > 1; });
  if (shares) {
    notes.push_back(
        "an island's devices are taken to share its batch; this Atoll trains an island on one "
        "device");
  }
}

}  // namespace

std::string span_text(double seconds) {
  if (seconds >= 2 * 86400) return fmt::format("{:.3g} d", seconds / 86400);
  if (seconds >= 2 * 3600) return fmt::format("{:.3g} h", seconds / 3600);
  if (seconds >= 120) return fmt::format("{:.3g} min", seconds / 60);
  return fmt::format("{:.3g} s", seconds);
}

std::vector<PlanChoice> feasible_choices(const PlanRequest& request, Candidates& candidates) {
  Search search(request, candidates);
  std::vector<PlannedShape> sizes = candidates.sizes();
  // A target is reached soonest by the smallest that reaches it; a limit allows a largest.
  if (!request.goal.loss) std::ranges::reverse(sizes);
  double first = 0;
  for (const PlannedShape& shape : sizes) {
    const double apart =
        first == 0 ? 1 : std::max(first / shape.law_params, shape.law_params / first);
    if (apart > kSizeRange) break;
    search.add(shape);
    if (first == 0 && search.has_found()) first = shape.law_params;
  }
  return search.take();
}

size_t recommended_of(const PlanRequest& request, const std::vector<PlanChoice>& choices) {
  const double lowest = std::ranges::min_element(choices, {}, &PlanChoice::loss)->loss;
  const auto best = std::ranges::min_element(choices, {}, [&](const PlanChoice& choice) {
    const Values v = values_of(choice);
    if (request.goal.loss) return Values{v[1], v[2], v[0]};
    if (request.goal.time_s) return v;
    const bool is_close = choice.loss <= kCloseLoss * lowest;
    return is_close ? Values{v[1], v[2], v[0]} : Values{kInfinity, kInfinity, kInfinity};
  });
  return static_cast<size_t>(best - choices.begin());
}

Plan make_plan(const PlanRequest& request, const std::optional<std::vector<Run>>& runs) {
  const PlanLoss loss(runs);
  Candidates candidates(request, loss);
  const auto feasible = feasible_choices(request, candidates);
  if (feasible.empty()) refuse_plan(request, candidates);
  const PlanChoice& recommended = feasible[recommended_of(request, feasible)];
  std::vector<PlanChoice> chosen = handful(without_dominated(feasible), recommended);
  std::ranges::sort(chosen, {}, values_of);
  Plan plan{.choices = {}, .why = {}, .notes = loss.notes()};
  for (PlanChoice& choice : chosen) {
    if (values_of(choice) == values_of(recommended)) plan.recommended = plan.choices.size();
    const double tokens = choice.tokens(request.goal);
    plan.choices.push_back(
        {choice, loss.predict(choice.shape.law_params, choice.setup.replicas(), tokens,
                              static_cast<double>(choice.setup.sync.sync_every))});
  }
  plan.why = why_of(request, candidates, plan.best().choice);
  add_notes(request, plan.best(), plan.notes);
  return plan;
}

}  // namespace atl::scaling
