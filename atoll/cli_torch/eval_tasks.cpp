#include "atoll/cli_torch/eval_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/version.h"
#include "atoll/serve/likelihood.h"
#include "atoll/tasks/prompts.h"
#include "atoll/tasks/results.h"
#include "atoll/tasks/task_selection.h"
#include "atoll/text/json_text.h"

namespace atl::cli {
namespace {

using tasks::Json;

/// A task and what is asked of the model for it.
struct AskedTask {
  const tasks::Task* task = nullptr;
  int64_t num_fewshot = 0;
  std::unique_ptr<tasks::TaskPrompts> prompts;
  std::vector<tasks::Question> questions;
};

std::vector<AskedTask> ask(const TaskArguments& arguments, const tasks::TaskSelection& selection) {
  const int64_t limit = arguments.limit > 0 ? arguments.limit : std::numeric_limits<int64_t>::max();
  std::vector<AskedTask> asked;
  for (const tasks::Task& task : selection.tasks) {
    const int64_t num_fewshot = tasks::num_fewshot(task, arguments.num_fewshot);
    auto prompts = std::make_unique<tasks::TaskPrompts>(task, num_fewshot);
    std::vector<tasks::Question> questions = prompts->questions(limit);
    asked.push_back({&task, num_fewshot, std::move(prompts), std::move(questions)});
  }
  return asked;
}

/// A special token that tokenizer_config.json names; nothing where the file or the key is missing,
/// an id of -1 where the file says that there is none.
std::optional<int64_t> named_token(const LoadedModel& loaded, const char* key) {
  const std::filesystem::path file = loaded.folder / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return std::nullopt;
  const Json config = text::parse_json<Json>(read_file(file), fmt::format("'{}'", file.string()));
  if (!config.is_object() || !config.contains(key)) return std::nullopt;
  Json token = config[key];
  if (token.is_object()) token = token.value("content", Json(nullptr));
  if (!token.is_string()) return -1;
  const auto id = loaded.tokenizer.id_of(token.get<std::string>());
  if (!id) {
    throw InputError(
        fmt::format("'{}': the {} {} is not in the tokenizer", file.string(), key, token.dump()));
  }
  return *id;
}

/// Before a text that nothing precedes stands its begin, else what ends one.
int64_t prefix_token(const LoadedModel& loaded) {
  const auto begin = named_token(loaded, "bos_token");
  if (begin && *begin >= 0) return *begin;
  if (!begin && loaded.ids.begin_of_text) return *loaded.ids.begin_of_text;
  const auto end = named_token(loaded, "eos_token");
  if (end && *end >= 0) return *end;
  return loaded.ids.ends.empty() ? loaded.tokenizer.end_of_text() : loaded.ids.ends.front();
}

/// Dynamic rotary positions could be stretched further, which lm-evaluation-harness does not do.
int64_t max_length_of(const TaskArguments& arguments, const weights::ModelConfig& config) {
  if (arguments.max_length > config.max_positions) {
    throw UsageError(fmt::format("--window {} is longer than the {} positions of the model",
                                 arguments.max_length, config.max_positions));
  }
  return arguments.max_length > 0 ? arguments.max_length : config.max_positions;
}

/// The requests of all questions, in their order, as tokens.
class EncodedRequests {
 public:
  EncodedRequests(const std::vector<AskedTask>& asked, tasks::RequestEncoder& encoder) {
    for (const AskedTask& task : asked) {
      for (const tasks::Question& question : task.questions) {
        try {
          add(*task.task, question, encoder);
        } catch (const InputError& error) {
          throw InputError(fmt::format("task '{}', document {}: {}", task.task->name,
                                       question.document, error.what()));
        }
      }
    }
  }

  const std::vector<tasks::TokenRequest>& requests() const { return requests_; }
  /// How many requests the next question has.
  int64_t num_next() { return counts_[next_++]; }

 private:
  void add(const tasks::Task& task, const tasks::Question& question,
           tasks::RequestEncoder& encoder) {
    const size_t before = requests_.size();
    for (const tasks::Request& request : question.requests) {
      if (task.output == tasks::OutputType::kRolling) {
        for (tasks::TokenRequest& window : encoder.encode_rolling(request.continuation)) {
          requests_.push_back(std::move(window));
        }
      } else {
        requests_.push_back(encoder.encode(request.context, request.continuation));
      }
    }
    counts_.push_back(static_cast<int64_t>(requests_.size() - before));
  }

  std::vector<tasks::TokenRequest> requests_;
  std::vector<int64_t> counts_;  // Of each question; a text in windows has several, or none.
  size_t next_ = 0;
};

Json run_settings(const TaskArguments& arguments, const ModelArguments& model,
                  const LoadedModel& loaded) {
  const auto optional = [](const auto& value, bool is_given) {
    return is_given ? Json(value) : Json(nullptr);
  };
  return {{"model", "atoll"},
          {"model_args", {{"pretrained", model.model}, {"tokenizer", model.tokenizer}}},
          {"model_num_parameters", weights::num_parameters(loaded.model.config())},
          {"model_dtype", "float32"},
          {"batch_size", optional(arguments.batch_rows, arguments.batch_rows > 0)},
          {"device", model.device},
          {"limit", optional(arguments.limit, arguments.limit > 0)},
          {"bootstrap_iters", arguments.bootstrap_iters},
          {"fewshot_seed", 1234}};
}

/// A results file by the name of what was read for it is a slip.
void refuse_overwriting(const TaskArguments& arguments, const tasks::TaskSelection& selection) {
  std::vector<std::filesystem::path> read(arguments.tasks.begin(), arguments.tasks.end());
  for (const tasks::Task& task : selection.tasks) {
    for (const auto& [split, files] : task.data_files) {
      read.insert(read.end(), files.begin(), files.end());
    }
  }
  for (const std::string& written : {arguments.output, arguments.log_samples}) {
    for (const std::filesystem::path& file : read) {
      std::error_code missing;
      if (!std::filesystem::equivalent(written, file, missing)) continue;
      throw UsageError(
          fmt::format("'{}' belongs to the tasks and would be overwritten; choose another file for "
                      "--output and --log-samples",
                      written));
    }
  }
}

/// Asks the model, and tells how fast it reads.
std::vector<tasks::Likelihood> likelihoods(const model::Model& model,
                                           std::span<const tasks::TokenRequest> requests,
                                           int64_t batch_rows) {
  const SystemClock clock;
  const Time begin = clock.now();
  ProgressBar bar("eval", 1, clock);
  return serve::likelihoods(model, requests, batch_rows, [&](int64_t done, int64_t all) {
    const auto tokens = static_cast<double>(done);
    const double rate = tokens / std::max(1e-9, seconds(clock.now() - begin));
    bar.update(tokens / static_cast<double>(all), format_count(rate) + " tokens/s");
  });
}

std::string title(const TaskArguments& arguments, const ModelArguments& model) {
  std::string shots = "as the tasks say";
  if (arguments.num_fewshot) shots = std::to_string(*arguments.num_fewshot);
  return fmt::format("{}, limit: {}, num_fewshot: {}\n", model.model,
                     arguments.limit > 0 ? std::to_string(arguments.limit) : "none", shots);
}

}  // namespace

void evaluate_tasks(const TaskArguments& arguments, const ModelArguments& model_arguments) {
  // Tasks first: what is wrong with them shows before a large model is read.
  const tasks::TaskSelection selection =
      tasks::select_tasks(arguments.tasks, arguments.include_paths, arguments.data);
  refuse_overwriting(arguments, selection);
  const std::vector<AskedTask> asked = ask(arguments, selection);
  const LoadedModel loaded = load_model(model_arguments);
  const int64_t max_length = max_length_of(arguments, loaded.model.config());
  tasks::RequestEncoder encoder(loaded.tokenizer, prefix_token(loaded), max_length);
  EncodedRequests encoded(asked, encoder);
  warn_lost(encoder.encoder());

  const std::vector<tasks::Likelihood> found =
      likelihoods(loaded.model, encoded.requests(), arguments.batch_rows);

  std::vector<tasks::TaskOutcome> outcomes;
  std::string samples;
  auto next = found.begin();
  for (const AskedTask& task : asked) {
    tasks::TaskOutcome outcome{task.task, task.prompts->num_documents(), task.num_fewshot, {}};
    for (const tasks::Question& question : task.questions) {
      const int64_t count = encoded.num_next();
      const std::vector<tasks::Likelihood> mine(next, next + count);
      next += count;
      outcome.metrics.push_back(tasks::document_metrics(*task.task, question, mine));
      if (arguments.log_samples.empty()) continue;
      samples += tasks::make_sample(*task.task, question, task.prompts->document(question.document),
                                    mine, outcome.metrics.back())
                     .dump() +
                 "\n";
    }
    outcomes.push_back(std::move(outcome));
  }
  Json results = tasks::make_results(outcomes, selection.groups, arguments.bootstrap_iters);
  results["config"] = run_settings(arguments, model_arguments, loaded);
  results["max_length"] = max_length;
  results["date"] = wall_time();
  results["atoll_version"] = version_text();
  if (!arguments.log_samples.empty()) write_file_atomically(arguments.log_samples, samples);
  if (!arguments.output.empty()) write_file_atomically(arguments.output, results.dump(2) + "\n");
  if (arguments.json) {
    fmt::print("{}\n", results.dump());
  } else {
    fmt::print("{}{}", title(arguments, model_arguments), tasks::results_table(results));
  }
}

}  // namespace atl::cli
