#pragma once
// `atoll eval --tasks`: the tasks of lm-evaluation-harness on a loaded model.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/cli_torch/model_arguments.h"
#include "atoll/tasks/data_folder.h"

namespace atl::cli {

struct TaskArguments {
  std::vector<std::string> tasks;  // Files or names.
  std::vector<std::filesystem::path> include_paths;
  tasks::DataFolders data;  // Data sets of the Hub.
  std::optional<int64_t> num_fewshot;
  int64_t limit = 0;       // Documents of each task; 0: all.
  int64_t batch_rows = 0;  // 0: chosen by length.
  int64_t max_length = 0;  // Tokens that the model reads at a time; 0: as many as it was made for.
  int64_t bootstrap_iters = 100'000;
  std::string output;  // Files; empty: not written.
  std::string log_samples;
  bool json = false;
};

/// Loads tasks and data, then the model, scores, prints and writes. Throws InputError.
void evaluate_tasks(const TaskArguments& arguments, const ModelArguments& model);

}  // namespace atl::cli
