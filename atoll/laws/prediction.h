#pragma once
// What a model of N parameters on M replicas will come to, and the settings to train it with, from
// the published laws or from one's own runs; each with its uncertainty. Pure.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "atoll/laws/comparable.h"
#include "atoll/laws/optima.h"
#include "atoll/laws/parametric.h"
#include "atoll/laws/power_law.h"
#include "atoll/laws/table.h"

namespace atl::laws {

enum class LawChoice {
  kAuto,         // The joint law, where there is one.
  kIndependent,  // The law of this number of replicas alone.
  kJoint,
};

struct Prediction {
  std::string law;    // "joint" or "independent".
  Interval loss;      // Its range is the law's own, or wider: see law_loss.
  Interval law_loss;  // By the law alone: where a new run falls with that confidence if it holds.
  std::optional<Interval> batch_tokens;
  std::optional<Interval> inner_lr;
  std::optional<Interval> outer_lr;   // None for data-parallel.
  std::vector<std::string> warnings;  // Of the law.
  std::vector<Refusal> missing;       // What could not be predicted, and why.
  double extrapolation = 1;           // Times beyond the fitted sizes, or below; 1: among them.
  double replicas_extrapolation = 1;  // Times beyond the fitted replicas, or below; 1: among them.
  double smallest = 0;                // Fitted sizes.
  double largest = 0;

  /// Forms with a floor, or what is not known beyond the sizes, reach further than the law's own
  /// range. How many runs fall into such a one nobody can say.
  bool is_widened() const { return loss.low < law_loss.low || loss.high > law_loss.high; }
};

struct Question {
  double params = 0;
  double replicas = 0;
  LawChoice law = LawChoice::kAuto;
  double confidence = 0.95;
};

/// The laws of a table of runs, fitted once and asked many times. Not thread-safe.
class Predictor {
 public:
  /// Of the published losses; settings from the published laws.
  Predictor();
  /// Of those of one's own runs that compare. Throws InputError when they allow no law of the loss
  /// at all, or as comparable_runs() does.
  explicit Predictor(const std::vector<Run>& runs) : Predictor(comparable_runs(runs)) {}
  explicit Predictor(const Comparable& own);
  bool has_law(const Question& question) const;
  /// The loss alone, as predict() says it, quickly. has_law(question).
  double loss(const Question& question) const;
  /// Throws InputError when no law of the loss answers.
  Prediction predict(const Question& question) const;

 private:
  Prediction predict_loss(const Question& question) const;
  void widen_by_forms(Interval& loss, const Question& question) const;

  bool published_ = true;
  std::vector<Point> points_;
  PowerLaws loss_;
  Optima batch_optima_;
  PowerLaws batch_;
  Optima lr_optima_;
  PowerLaws lr_;
  std::map<double, OuterRate> outer_lr_;
  /// The forms with a floor, by the number of replicas that they are of; kJoint: of all.
  mutable std::map<double, std::vector<ParametricFit>> forms_;
};

/// From the published laws and losses.
Prediction predict_published(const Question& question);

/// From one's own runs. Throws InputError when they allow no law of the loss that answers.
Prediction predict_from(const std::vector<Run>& runs, const Question& question);

/// What is said of an extrapolation; empty: there is none.
std::string extrapolation_warning(const Prediction& prediction, const Question& question);

}  // namespace atl::laws
