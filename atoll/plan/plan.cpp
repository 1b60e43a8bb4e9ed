#include "atoll/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>

#include "atoll/base/progress.h"
#include "atoll/method/method.h"
#include "atoll/plan/plan_refusal.h"
#include "atoll/plan/plan_search.h"
#include "atoll/plan/plan_sharding.h"

namespace atl::plan {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kMostChoices = 8;
constexpr double kPapersVocabulary = 32768;

using Values = std::array<double, 3>;

/// Smaller is better in each.
Values values_of(const PlanChoice& choice) {
  return {choice.loss, choice.wall_clock_s, choice.total_bytes()};
}

bool dominates(const Values& a, const Values& b) {
  return a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2];
}

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

/// Empty where the goal says how many there are.
std::string tokens_text(const PlanGoal& goal, const Candidates& candidates) {
  if (goal.params && goal.tokens) return "";
  const double fewest = candidates.fewest_tokens_per_param();
  const double most = candidates.most_tokens_per_param();
  std::string text = fmt::format(", with {:.3g} tokens a parameter", fewest);
  if (goal.params && most > fewest) text += fmt::format(" to {:.3g}", most);
  if (!goal.params && most > fewest) {
    text += fmt::format(" and up to {:.3g} where no larger model fits or ends in time", most);
  }
  return text + ",";
}

std::string rule_of(const PlanGoal& goal, const Candidates& candidates) {
  const std::string tried = "Of all that was tried" + tokens_text(goal, candidates);
  if (goal.loss)
    return fmt::format("{} it is the soonest to reach the loss {:g}", tried, *goal.loss);
  if (goal.time_s) {
    return fmt::format("{} it has the lowest predicted loss within {}", tried,
                       span_text(*goal.time_s));
  }
  return tried + " it ends soonest with a predicted loss within 1 % of the lowest";
}

/// Of the islands that are left out, and of what waiting costs.
std::string why_of(const PlanRequest& request, const Candidates& candidates,
                   const PlanChoice& choice) {
  std::string why = rule_of(request.goal, candidates);
  std::vector<size_t> others;
  for (size_t i = 0; i < request.islands.size(); ++i) {
    if (std::ranges::count(choice.setup.islands, i) == 0) others.push_back(i);
  }
  if (others.empty()) {
    why += choice.setup.islands.size() > 1 ? "; all islands take part." : ".";
  } else {
    constexpr size_t kFewNames = 6;
    why += fmt::format("; of the groups that were tried none with {}{} is better.",
                       others.size() > 1 ? "any of " : "",
                       others.size() <= kFewNames
                           ? quoted_names(request, others)
                           : fmt::format("the other {} islands", others.size()));
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
  why +=
      " Each method has one codec, that of the papers: no law knows what loss another would have.";
  return why;
}

void add_batch_note(const PlanRequest& request, const PlanChoice& choice,
                    std::vector<std::string>& notes) {
  const double batch = static_cast<double>(choice.batch_rows * request.goal.sequence_length);
  const laws::Interval& law = choice.settings.batch_tokens;
  if (batch >= law.low && batch <= law.high) return;
  const double most = choice.tokens(request.goal) / kFewestSteps;
  const bool is_cut = batch < law.low && law.value > most;
  notes.push_back(fmt::format(
      "the batch, {:.3g} tokens, is {} than the law's range, {:.3g} to {:.3g}: {}; the inner rate "
      "is for the law's",
      batch, batch < law.low ? "smaller" : "larger", law.low, law.high,
      is_cut ? fmt::format("larger ones would leave fewer than {:g} steps", kFewestSteps)
             : "each device of each island takes the same number of whole rows"));
}

struct LargerModel {
  double params = 0;
  double loss = 0;
};

/// The next one, where the choice's islands have the memory and the tokens for it.
std::optional<LargerModel> next_larger(const Candidates& candidates, const PlanChoice& choice) {
  const auto next = std::ranges::find_if(candidates.sizes(), [&](const PlannedSize& size) {
    return size.shape.law_params > choice.shape.law_params;
  });
  const auto way = std::ranges::find_if(candidates.ways(), [&](const PlanWay& each) {
    return each.num_islands == choice.setup.islands.size() &&
           each.sync.method == choice.setup.sync.method &&
           each.sync.sync_every == choice.setup.sync.sync_every;
  });
  if (next == candidates.sizes().end() || way == candidates.ways().end()) return std::nullopt;
  const bool fits = std::ranges::all_of(
      choice.setup.islands, [&](size_t i) { return candidates.is_able(i, *next, *way); });
  if (!fits) return std::nullopt;
  return LargerModel{next->shape.law_params, candidates.loss(*next, *way)};
}

/// Where time is left over.
void add_limit_note(const PlanRequest& request, const Candidates& candidates,
                    const PlanChoice& choice, std::vector<std::string>& notes) {
  const PlanGoal& goal = request.goal;
  const double limit_s = goal.time_s.value_or(0);
  if (goal.loss || goal.params || choice.wall_clock_s >= 0.8 * limit_s) return;
  constexpr double kNearly = 0.9;
  const double tokens = choice.tokens(goal);
  const auto larger = next_larger(candidates, choice);
  const bool uses_tokens = goal.tokens && tokens > kNearly * *goal.tokens;
  bool is_memory = false;
  std::string note;
  if (uses_tokens) {
    note = "'tokens', not time, limits the training";
  } else if (larger && larger->loss < choice.loss) {
    note = fmt::format("the next larger model, of {} parameters, takes longer",
                       format_count(larger->params));
  } else if (larger) {
    note = "the laws give larger models no lower loss";
  } else {
    is_memory = true;
    note = "memory, not time, limits the size";
  }
  note += fmt::format(": {} of {} are used", span_text(choice.wall_clock_s), span_text(limit_s));
  const double most = candidates.most_tokens_per_param();
  if (goal.tokens_per_param && !uses_tokens) {
    note += "; more 'tokens_per_param' would lower the loss further";
  } else if (!uses_tokens && tokens > kNearly * most * choice.shape.law_params) {
    note += fmt::format(
        "; more than {:.3g} tokens a parameter are not tried, as nothing is known of them", most);
  }
  if (is_memory && !request.train.activation_checkpointing) {
    note += "; [train] activation_checkpointing = true leaves more of it, at a third more work";
  }
  notes.push_back(note);
}

/// No speed is made up: it is taken as it was measured.
void add_precision_note(const PlanRequest& request, const PlanChoice& choice,
                        std::vector<std::string>& notes) {
  const std::string precision = planned_precision(request);
  std::vector<size_t> others;
  std::ranges::copy_if(choice.setup.islands, std::back_inserter(others),
                       [&](size_t i) { return request.islands[i].precision != precision; });
  if (others.empty()) return;
  notes.push_back(fmt::format(
      "the run is in {0}, and the speed of {1} was measured in {2}; it is taken as it is: "
      "`atoll plan --measure --train.precision={0}` measures it",
      precision, quoted_names(request, others), precision == "bf16" ? "fp32" : "bf16"));
}

void add_notes(const PlanRequest& request, const Candidates& candidates, const PlannedRun& run,
               std::vector<std::string>& notes) {
  const PlanChoice& choice = run.choice;
  if (!run.loss.extrapolation.empty()) notes.push_back("extrapolated: " + run.loss.extrapolation);
  add_batch_note(request, choice, notes);
  add_limit_note(request, candidates, choice, notes);
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
  add_precision_note(request, choice, notes);
}

}  // namespace

std::string span_text(double seconds) {
  if (seconds >= 2 * 86400) return fmt::format("{:.3g} d", seconds / 86400);
  if (seconds >= 2 * 3600) return fmt::format("{:.3g} h", seconds / 3600);
  if (seconds >= 120) return fmt::format("{:.3g} min", seconds / 60);
  return fmt::format("{:.3g} s", seconds);
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

Plan make_plan(const PlanRequest& request, const std::optional<std::vector<laws::Run>>& runs) {
  const PlanLoss loss(runs);
  Candidates candidates(request, loss);
  const PlanSearch search(candidates);
  const auto feasible = feasible_choices(request.goal, candidates, search);
  if (feasible.empty()) refuse_plan(request, loss, candidates, search);
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
  add_notes(request, candidates, plan.best(), plan.notes);
  const auto vocabulary = static_cast<double>(request.goal.vocab_size);
  if (loss.is_published() && std::abs(std::log(vocabulary / kPapersVocabulary)) > 0.1) {
    plan.notes.push_back(fmt::format(
        "the published losses are for tokens of a vocabulary of {:g}: with {:g} each says more or "
        "less, and so has another loss",
        kPapersVocabulary, vocabulary));
  }
  return plan;
}

}  // namespace atl::plan
