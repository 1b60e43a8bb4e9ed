#include "atoll/plan/plan_loss.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "atoll/base/error.h"
#include "atoll/laws/published.h"

namespace atl::plan {
namespace {

/// The median of what the runs say, in place of `assumed`; a note where they say nothing.
template <typename Get>
double usual(const std::vector<laws::Run>& runs, const Get& get, double assumed, const char* what,
             std::vector<std::string>& notes) {
  std::vector<double> values;
  for (const laws::Run& run : runs) {
    if (const std::optional<double> value = get(run)) values.push_back(*value);
  }
  if (!values.empty()) return laws::quantile(values, 0.5);
  notes.push_back(fmt::format("the table does not say {}: taken to be {:g}", what, assumed));
  return assumed;
}

}  // namespace

PlanLoss::PlanLoss(const std::optional<std::vector<laws::Run>>& runs) {
  if (!runs) return;
  own_.emplace(*runs);
  tokens_per_param_ = usual(
      *runs,
      [](const laws::Run& run) {
        return run.tokens ? std::optional(*run.tokens / run.params) : std::nullopt;
      },
      tokens_per_param_, "how many tokens a parameter its runs had", notes_);
  sync_every_ = usual(
      *runs,
      [](const laws::Run& run) {
        return run.replicas >= 1 ? run.sync_every : std::optional<double>();
      },
      sync_every_, "how many steps lay between its runs' syncs", notes_);
  std::set<std::string> warnings;
  for (const laws::Run& run : *runs) {
    if (!has_law(run.replicas)) continue;
    for (const std::string& warning :
         own_->predict({.params = run.params, .replicas = run.replicas}).warnings) {
      if (warnings.insert(warning).second) notes_.push_back(warning);
    }
  }
  // Of a number of replicas that the table has a law of.
  const auto any =
      std::ranges::find_if(*runs, [&](const laws::Run& run) { return has_law(run.replicas); });
  if (any == runs->end()) {
    throw InputError(
        "the table has no law of the loss: no number of replicas has runs of three sizes");
  }
  for (const laws::Refusal& missing :
       own_->predict({.params = any->params, .replicas = any->replicas}).missing) {
    notes_.push_back(
        fmt::format("{} is that of the published laws: {}", missing.what, missing.reason));
  }
}

bool PlanLoss::has_law(double replicas) const {
  return laws().has_law({.params = 1, .replicas = replicas});
}

double PlanLoss::period_cost(double replicas, double sync_every) const {
  if (replicas < 1) return 1;
  return std::exp(laws::kPublishedPeriodCost * std::pow(replicas, laws::kPublishedPeriodPower) *
                  std::log(sync_every / sync_every_));
}

double PlanLoss::token_params(double params, double tokens) const {
  return std::min(tokens / tokens_per_param_, kCheckedTokens * params);
}

double PlanLoss::value(double params, double replicas, double tokens, double sync_every) const {
  const auto at = [&](double n) { return laws().loss({.params = n, .replicas = replicas}); };
  return (at(params) + at(token_params(params, tokens))) / 2 * period_cost(replicas, sync_every);
}

PlannedLoss PlanLoss::predict(double params, double replicas, double tokens,
                              double sync_every) const {
  const laws::Question question{.params = params, .replicas = replicas};
  const laws::Prediction law = laws().predict(question);
  const double value = this->value(params, replicas, tokens, sync_every);
  const double scale = value / law.loss.value;
  PlannedLoss planned{.loss = {value, law.loss.low * scale, law.loss.high * scale},
                      .extrapolation = laws::extrapolation_warning(law, question)};
  const double cost = period_cost(replicas, sync_every);
  const double other = token_params(params, tokens);
  const auto at = [&](double n) { return laws().loss({.params = n, .replicas = replicas}); };
  // A period may cost nothing, or twice as much.
  for (const double factor : {1.0, cost, cost * cost}) {
    planned.loss.low = std::min(planned.loss.low, factor * at(std::sqrt(params * other)));
    planned.loss.high = std::max(planned.loss.high, factor * std::max(at(params), at(other)));
  }
  const double share = tokens / params / tokens_per_param_;
  const auto add = [&](const std::string& text) {
    planned.extrapolation += (planned.extrapolation.empty() ? "" : "; ") + text;
  };
  if (share > 1.02 || share < 0.98) {
    add(fmt::format("{:.3g} tokens a parameter, where the laws' runs had {:.3g}", tokens / params,
                    tokens_per_param_));
  }
  if (share > 1.02 * kCheckedTokens) {
    add(fmt::format("nothing is known beyond {:g} times as many, and no gain is counted",
                    kCheckedTokens));
  }
  if (replicas >= 1 && sync_every != sync_every_) {
    add(fmt::format("{:g} steps between syncs, where the laws' runs had {:g}", sync_every,
                    sync_every_));
  }
  return planned;
}

/// Not above what it says of its smallest size: learning rates fall with size, and no run has shown
/// that small models bear what a line through larger ones says of them.
laws::Interval PlanLoss::inner_lr(const laws::Predictor& laws, const laws::Question& question,
                                  const laws::Prediction& prediction) {
  if (question.params >= prediction.smallest) return *prediction.inner_lr;
  laws::Question smallest = question;
  smallest.params = prediction.smallest;
  laws::Interval rate = *laws.predict(smallest).inner_lr;
  if (prediction.inner_lr->value <= rate.value) return *prediction.inner_lr;
  rate.high = std::max(rate.high, prediction.inner_lr->high);
  return rate;
}

PlannedSettings PlanLoss::settings(double params, double replicas) const {
  const laws::Question question{.params = params, .replicas = replicas};
  const laws::Prediction usual = published_.predict(question);
  PlannedSettings settings{*usual.batch_tokens, inner_lr(published_, question, usual),
                           usual.outer_lr};
  if (!own_) return settings;
  const laws::Prediction own = own_->predict(question);
  if (own.batch_tokens) settings.batch_tokens = *own.batch_tokens;
  if (own.inner_lr) settings.inner_lr = inner_lr(*own_, question, own);
  if (own.outer_lr) settings.outer_lr = own.outer_lr;
  return settings;
}

}  // namespace atl::plan
