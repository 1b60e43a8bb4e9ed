#pragma once
// Scores of tasks and groups in the shape of lm-evaluation-harness's results file, and as its
// table.
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/tasks/json.h"
#include "atoll/tasks/metrics.h"
#include "atoll/tasks/task_selection.h"

namespace atl::tasks {

/// One task's questions and what each metric says of each.
struct TaskOutcome {
  const Task* task = nullptr;
  int64_t num_documents = 0;  // Of the split; `metrics` has those that were asked about.
  int64_t num_fewshot = 0;
  std::vector<Json> metrics;  // document_metrics() of each.
};

/// "results", "groups", "group_subtasks", "configs", "versions", "n-shot", "higher_is_better" and
/// "n-samples". Throws InputError naming the task: see aggregate().
Json make_results(const std::vector<TaskOutcome>& outcomes, const std::vector<TaskGroup>& groups,
                  int64_t bootstrap_iters);

/// One line of a samples file.
Json make_sample(const Task& task, const Question& question, const Json& document,
                 const std::vector<Likelihood>& likelihoods, const Json& metrics);

/// A Markdown table of `results["results"]`.
std::string results_table(const Json& results);

}  // namespace atl::tasks
