#pragma once
// Likelihoods to scores, as lm-evaluation-harness computes them. Pure functions.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/tasks/json.h"
#include "atoll/tasks/prompts.h"
#include "atoll/tasks/task.h"

namespace atl::tasks {

/// What a model gives for one request.
struct Likelihood {
  double log_probability = 0;  // Natural logarithm, of the whole continuation.
  bool is_greedy = false;      // Each of its tokens is what the model thinks likeliest.
};

/// What each of the task's metrics says of one document, by its name: a number, for perplexities of
/// texts [likelihood, weight], for f1 and mcc [right, guess], for brier_score [right, shares].
Json document_metrics(const Task& task, const Question& question,
                      const std::vector<Likelihood>& likelihoods);

/// The score over all documents' values. Throws InputError where the values do not allow it (f1 of
/// more than two classes, an answer that is none of the choices).
double aggregate(const Metric& metric, const std::vector<Json>& values);

/// Its standard error: of a mean the deviation over the root of n; of a perplexity, f1 and mcc by
/// `bootstrap_iters` samples (in thousands, the rest is left out), drawn as Python draws them.
/// Nothing where there is no way, with fewer than two values, or with bootstrap_iters 0.
std::optional<double> standard_error(const Metric& metric, const std::vector<Json>& values,
                                     int64_t bootstrap_iters);

}  // namespace atl::tasks
