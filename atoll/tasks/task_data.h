#pragma once
// Where a task's documents lie: what its file says of data, and the folders that are named for it.
#include <filesystem>

#include "atoll/tasks/data_folder.h"
#include "atoll/tasks/json.h"

namespace atl::tasks {

/// The files of each split of a task with these settings. Files that it names itself
/// (`dataset_path: json`) are relative to `folder`, the task file's; a data set of the Hub is
/// looked for in `data`. Throws InputError.
SplitFiles read_task_data(const Json& settings, const std::filesystem::path& folder,
                          const DataFolders& data);

}  // namespace atl::tasks
