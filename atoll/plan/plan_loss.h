#pragma once
// The loss of a planned run, beyond what the laws say by themselves: other tokens for a parameter
// than their runs had, other periods between syncs. Not thread-safe.
//
// Let L(N) be the law, of runs with r0 tokens for each of their N parameters. With D tokens a
// plan says (L(N) + L(D / r0)) / 2: that is L(N) for D = r0 N, and of all sizes that take the same
// compute N D it is least where D = r0 N. With alpha = -0.095 four times the tokens give 6.2 % less
// loss, ten times 9.8 %; Streaming DiLoCo's Table 7 has 5.6 % and 8.2 % (1B, Dolma). The range
// reaches from the best model of that compute, L(sqrt(N D / r0)), to the worse of the two. The rule
// was checked to ten times r0, and tokens beyond that count nothing: kCheckedTokens.
//
// Published runs with replicas sync every 30 steps. With 100 their loss is higher by
// ln(100 / 30) c M^p (Streaming DiLoCo, tables 5 and 6: 0.7 % with 2 replicas, 1.1 % with 4).
#include <optional>
#include <string>
#include <vector>

#include "atoll/laws/prediction.h"

namespace atl::plan {

/// So many times the tokens a parameter of the laws' runs, at most, lower a planned loss.
constexpr double kCheckedTokens = 10;

struct PlannedLoss {
  laws::Interval loss;
  std::string extrapolation;  // What is said of it; empty: there is none.
};

struct PlannedSettings {
  laws::Interval batch_tokens;
  laws::Interval inner_lr;
  std::optional<laws::Interval> outer_lr;  // With replicas.
};

class PlanLoss {
 public:
  /// The published laws, or those of `runs`.
  explicit PlanLoss(const std::optional<std::vector<laws::Run>>& runs);

  /// Whether there is a law for so many replicas (0: data-parallel).
  bool has_law(double replicas) const;
  /// has_law(replicas).
  double value(double params, double replicas, double tokens, double sync_every) const;
  PlannedLoss predict(double params, double replicas, double tokens, double sync_every) const;
  /// The published ones where one's own runs have no sweep.
  PlannedSettings settings(double params, double replicas) const;

  /// What the laws' runs had; 20 and 30 where a table does not say.
  double tokens_per_param() const { return tokens_per_param_; }
  double sync_every() const { return sync_every_; }
  bool is_published() const { return !own_; }
  /// What was assumed, for people.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  const laws::Predictor& laws() const { return own_ ? *own_ : published_; }
  /// The tokens that count, as parameters of a model of the laws' runs.
  double token_params(double params, double tokens) const;
  static laws::Interval inner_lr(const laws::Predictor& laws, const laws::Question& question,
                                 const laws::Prediction& prediction);
  /// exp of what longer periods cost.
  double period_cost(double replicas, double sync_every) const;

  laws::Predictor published_;
  std::optional<laws::Predictor> own_;
  double tokens_per_param_ = 20;
  double sync_every_ = 30;
  std::vector<std::string> notes_;
};

}  // namespace atl::plan
