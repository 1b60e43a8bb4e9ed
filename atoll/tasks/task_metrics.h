#pragma once
// Which metrics a task may name, and what it names.
#include <vector>

#include "atoll/tasks/task.h"

namespace atl::tasks {

/// Of a task's `metric_list`; null: the usual ones for such an output. Throws InputError.
std::vector<Metric> read_metrics(const Json& list, OutputType output);

}  // namespace atl::tasks
