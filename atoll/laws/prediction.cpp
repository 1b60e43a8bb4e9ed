#include "atoll/laws/prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/laws/fit.h"
#include "atoll/laws/published.h"

namespace atl::laws {
namespace {

/// How many times `value` lies outside [low, high]; 1 within.
double times_outside(double value, double low, double high) {
  if (value > high) return value / high;
  if (value < low) return low / value;
  return 1;
}

const PowerLaw* choose(const PowerLaws& laws, const Question& question) {
  const bool may_be_joint = question.replicas >= 1 && laws.joint;
  switch (question.law) {
    case LawChoice::kAuto:
      return may_be_joint ? &*laws.joint : laws.of(question.replicas);
    case LawChoice::kIndependent:
      return laws.of(question.replicas);
    case LawChoice::kJoint:
      return may_be_joint ? &*laws.joint : nullptr;
  }
  return nullptr;
}

std::string no_law(const PowerLaws& laws, const Question& question, const std::string& quantity) {
  if (question.law == LawChoice::kJoint && question.replicas == 0) {
    return "data-parallel runs are no part of the joint law";
  }
  for (const Refusal& refusal : laws.refused) {
    if (refusal.what == fmt::format("{} of {}", quantity, replicas_name(question.replicas))) {
      return refusal.reason;
    }
  }
  if (question.replicas >= 1) {
    for (const Refusal& refusal : laws.refused) {
      if (refusal.what == "joint law of " + quantity && question.law != LawChoice::kIndependent) {
        return fmt::format("no rows of {}, and no joint law: {}", replicas_name(question.replicas),
                           refusal.reason);
      }
    }
  }
  return fmt::format("no rows of {}", replicas_name(question.replicas));
}

void widen(Interval& interval, double value) {
  interval.low = std::min(interval.low, value);
  interval.high = std::max(interval.high, value);
}

/// By how much the law missed the largest of its sizes when it had to do without it, for each unit
/// of ln(size) that it went too far. Of three sizes two are left, which draw a line; where they do
/// not tell replicas apart, it is the line of all of them.
double miss_per_log_size(const std::vector<Point>& fitted, bool joint) {
  const HeldOut held = hold_out_largest(fitted);
  double largest = 0;
  for (const Point& point : held.kept) largest = std::max(largest, point.params);
  std::optional<PowerLaw> law = fit_power_law(held.kept, joint);
  if (!law) law = fit_power_law(held.kept, /*joint=*/false);
  ATOLL_CHECK(law.has_value(), "a law has three sizes");
  double sum = 0;
  for (const Point& point : held.out) {
    sum += std::abs(std::log(point.value / law->predict(point.params, point.replicas)));
  }
  return sum / static_cast<double>(held.out.size()) / std::log(held.params / largest);
}

/// The chosen law's value; its range holds the other law's too, and half a step of the sweep.
Interval from_published(std::span<const PublishedLaw> laws, const Question& question, bool joint,
                        double half_step, double unit) {
  Interval interval{0, std::numeric_limits<double>::infinity(), 0};
  for (const PublishedLaw& law : laws) {
    const bool is_joint = law.replicas == kAllNumbers;
    if (is_joint ? question.replicas < 1 : law.replicas != question.replicas) continue;
    const double value = unit * law.predict(question.params, question.replicas);
    widen(interval, value);
    if (is_joint == joint) interval.value = value;
  }
  interval.low /= half_step;
  interval.high *= half_step;
  return interval;
}

/// Between the published numbers of replicas by their logarithm, beyond them the nearest.
Interval published_outer_rate(double replicas) {
  const auto& rates = kPublishedOuterRates;
  double value = rates.front().outer_lr;
  for (size_t i = 0; i + 1 < rates.size(); ++i) {
    const double share = std::log(replicas / rates[i].replicas) /
                         std::log(rates[i + 1].replicas / rates[i].replicas);
    value += std::clamp(share, 0.0, 1.0) * (rates[i + 1].outer_lr - rates[i].outer_lr);
  }
  return {value, value - kPublishedOuterStep, value + kPublishedOuterStep};
}

std::optional<Interval> predict_setting(const Optima& optima, const PowerLaws& laws,
                                        const Question& question, const std::string& name,
                                        std::vector<Refusal>& missing) {
  if (const PowerLaw* law = choose(laws, question)) {
    return law->interval(question.params, question.replicas, question.confidence);
  }
  std::string reason = "the table has no sweep of it";
  if (!optima.points.empty()) {
    reason = no_law(laws, question, name);
  } else if (!optima.refused.empty()) {
    reason = optima.refused[0].what + ": " + optima.refused[0].reason;
  }
  missing.push_back({name, reason});
  return std::nullopt;
}

}  // namespace

Predictor::Predictor()
    : points_(loss_points(published_losses())), loss_(fit_power_laws(points_, "loss")) {}

Predictor::Predictor(const Comparable& own)
    : published_(false),
      points_(loss_points(own.runs)),
      loss_(fit_power_laws(points_, "loss")),
      batch_optima_(quadratic_optima(own.runs, &Run::batch, "batch")),
      lr_optima_(quadratic_optima(own.runs, &Run::lr, "lr")),
      outer_lr_(outer_rates(own.runs)) {
  require_law(loss_);
  if (!batch_optima_.points.empty()) batch_ = fit_power_laws(batch_optima_.points, "batch");
  if (!lr_optima_.points.empty()) lr_ = fit_power_laws(lr_optima_.points, "lr");
}

bool Predictor::has_law(const Question& question) const {
  return choose(loss_, question) != nullptr;
}

double Predictor::loss(const Question& question) const {
  return choose(loss_, question)->predict(question.params, question.replicas);
}

/// A power law has no floor; the forms with a constant do. Where they part is what nobody knows.
void Predictor::widen_by_forms(Interval& loss, const Question& question) const {
  const bool replicated = question.replicas >= 1;
  std::vector<Point> fitted;
  double first = -1;
  bool several = false;
  for (const Point& point : points_) {
    if ((point.replicas >= 1) != replicated) continue;
    fitted.push_back(point);
    if (first < 0) first = point.replicas;
    several |= point.replicas != first;
  }
  if (!several) {
    std::erase_if(fitted, [&](const Point& p) { return p.replicas != question.replicas; });
  }
  const auto [place, is_new] = forms_.try_emplace(several ? kAllNumbers : question.replicas);
  if (is_new) {
    const std::vector<Form>& forms = parametric_forms();
    const std::span<const Form> used =
        several ? std::span(forms).subspan(1) : std::span(&single_form(), 1);
    for (const Form& form : used) {
      if (fitted.size() <= form.num_coefficients()) continue;
      place->second.push_back(fit_parametric(form, fitted, {}));
    }
  }
  for (const ParametricFit& fit : place->second) {
    widen(loss, fit.predict(question.params, question.replicas));
  }
}

/// Law, loss and how far it is extrapolated.
Prediction Predictor::predict_loss(const Question& question) const {
  const PowerLaw* law = choose(loss_, question);
  if (law == nullptr) {
    throw InputError(fmt::format("the loss of {} cannot be predicted: {}",
                                 replicas_name(question.replicas),
                                 no_law(loss_, question, "loss")));
  }
  Prediction prediction;
  prediction.law = law->joint() ? "joint" : "independent";
  const std::string name = law->joint() ? "joint law" : replicas_name(question.replicas);
  if (std::string text = growth_warning(*law, name); !text.empty()) {
    prediction.warnings.push_back(text);
  }
  prediction.law_loss = law->interval(question.params, question.replicas, question.confidence);
  prediction.loss = prediction.law_loss;
  widen_by_forms(prediction.loss, question);
  std::vector<Point> fitted = points_;
  std::erase_if(fitted, [&](const Point& point) {
    return law->joint() ? point.replicas < 1 : point.replicas != question.replicas;
  });
  prediction.smallest = std::numeric_limits<double>::infinity();
  double fewest = std::numeric_limits<double>::infinity();
  double most = 0;
  for (const Point& point : fitted) {
    prediction.smallest = std::min(prediction.smallest, point.params);
    prediction.largest = std::max(prediction.largest, point.params);
    fewest = std::min(fewest, point.replicas);
    most = std::max(most, point.replicas);
  }
  prediction.extrapolation =
      times_outside(question.params, prediction.smallest, prediction.largest);
  if (question.replicas >= 1) {
    prediction.replicas_extrapolation = times_outside(question.replicas, fewest, most);
  }
  if (prediction.extrapolation > 1) {
    const double miss =
        std::exp(miss_per_log_size(fitted, law->joint()) * std::log(prediction.extrapolation));
    prediction.loss.low /= miss;
    prediction.loss.high *= miss;
  }
  return prediction;
}

Prediction Predictor::predict(const Question& question) const {
  Prediction prediction = predict_loss(question);
  if (published_) {
    const bool joint = prediction.law == "joint";
    prediction.batch_tokens =
        from_published(kPublishedBatch, question, joint, kPublishedBatchStep, kPublishedBatchUnit);
    prediction.inner_lr = from_published(kPublishedInnerLr, question, joint, kPublishedLrStep, 1);
    if (question.replicas >= 1) prediction.outer_lr = published_outer_rate(question.replicas);
    return prediction;
  }
  prediction.batch_tokens =
      predict_setting(batch_optima_, batch_, question, "batch", prediction.missing);
  prediction.inner_lr = predict_setting(lr_optima_, lr_, question, "lr", prediction.missing);
  if (question.replicas >= 1) {
    const auto found = outer_lr_.find(question.replicas);
    if (found != outer_lr_.end()) {
      prediction.outer_lr = {found->second.mean, found->second.low, found->second.high};
    } else {
      prediction.missing.push_back({"outer_lr", fmt::format("the table has no outer_lr of {}",
                                                            replicas_name(question.replicas))});
    }
  }
  return prediction;
}

Prediction predict_published(const Question& question) { return Predictor().predict(question); }

Prediction predict_from(const std::vector<Run>& runs, const Question& question) {
  return Predictor(runs).predict(question);
}

std::string extrapolation_warning(const Prediction& prediction, const Question& question) {
  std::string text;
  if (prediction.extrapolation > 1) {
    const bool above = question.params > prediction.largest;
    text =
        fmt::format("{:.3g} params are {:.3g} times {} size of the runs, {:.3g}", question.params,
                    prediction.extrapolation, above ? "the largest" : "below the smallest",
                    above ? prediction.largest : prediction.smallest);
  }
  if (prediction.replicas_extrapolation > 1) {
    text += fmt::format("{}{} are {:.3g} times as many as any run had", text.empty() ? "" : "; ",
                        replicas_name(question.replicas), prediction.replicas_extrapolation);
  }
  return text;
}

}  // namespace atl::laws
