#pragma once
// Tasks by name: a group lists tasks and groups, a tag stands for all tasks that carry it.
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/tasks/task.h"

namespace atl::tasks {

/// A score of a group: the mean over its tasks.
struct GroupMetric {
  std::string name;
  bool weight_by_size = true;  // By the number of documents, else tasks weigh alike.
};

struct TaskGroup {
  std::string name;
  std::string alias;
  std::string version;               // "N/A" where the file gives none.
  std::vector<std::string> members;  // Tasks and groups.
  std::vector<GroupMetric> metrics;
};

struct TaskSelection {
  std::vector<Task> tasks;
  std::vector<TaskGroup> groups;  // A group stands before those in it.
};

/// `wanted`: names of tasks, groups or tags, or files (what ends in .yaml, .yml or .json, or has a
/// '/'). Names are looked for in all .yaml and .json files below `include_paths`, and beside the
/// wanted files; only those that are asked for must be in order. `data`: where data sets of the Hub
/// lie. Throws InputError: a name that is not there, a task twice, a group in itself, and
/// everything of read_task_file() and read_task().
TaskSelection select_tasks(const std::vector<std::string>& wanted,
                           const std::vector<std::filesystem::path>& include_paths,
                           const DataFolders& data = {});

}  // namespace atl::tasks
