#pragma once
// What a task of lm-evaluation-harness (0.4.13) asks: the settings of its file, checked. A setting
// that is unknown, or that this version cannot honour, is refused by name.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/tasks/data_folder.h"
#include "atoll/tasks/documents.h"
#include "atoll/tasks/json.h"
#include "atoll/tasks/python_functions.h"

namespace atl::tasks {

enum class OutputType : uint8_t {
  kMultipleChoice,  // Which of several continuations is the likeliest?
  kLogLikelihood,   // How likely is one continuation, and is it what the model would say?
  kRolling,         // How likely is a whole text?
};

/// How a metric's values for the documents become one number.
enum class Aggregation : uint8_t {
  kMean,
  kPerplexity,          // exp(-mean).
  kWeightedPerplexity,  // exp(-sum of likelihoods / sum of weights).
  kBitsPerByte,         // -sum of likelihoods / sum of weights / ln 2.
  kBrierScore,
  kF1,
  kMatthews,
};

struct Metric {
  std::string name;
  Aggregation aggregation = Aggregation::kMean;
  bool higher_is_better = true;
};

/// How a document becomes text. Each of the three is null, a text (a document's field by its name,
/// or a template), a value of its own, or a function.
struct Wording {
  Json text;
  Json choice;
  Json target;
  std::optional<std::string> prefix;       // `gen_prefix`: what the answer begins with.
  NativeFunction text_function = nullptr;  // These stand in for text, choice and target.
  NativeFunction choice_function = nullptr;
  NativeFunction target_function = nullptr;
  std::string target_delimiter = " ";
  std::string fewshot_delimiter = "\n\n";
};

enum class Sampler : uint8_t { kDefault, kFirstN };

struct Task {
  std::string name;
  std::string alias;
  Json version;
  OutputType output = OutputType::kMultipleChoice;
  SplitFiles data_files;
  std::string split;                // Whose documents are asked about.
  NativeFunction change = nullptr;  // `process_docs`: what is made of each document first.
  NativeFunction change_example = nullptr;
  std::optional<std::string> source;  // The split of the examples; none: they are `samples`.
  bool leaves_out_asked = false;      // The document asked about is no example for itself.
  std::vector<Json> samples;
  Sampler sampler = Sampler::kDefault;
  std::string description;
  Wording asked;
  Wording example;
  std::optional<int64_t> num_fewshot;
  std::vector<Metric> metrics;
  Json config;  // All settings as lm-evaluation-harness prints them.
};

/// The task that a file's settings describe. Paths of data are relative to `folder`, the task
/// file's; `data` says where data sets of the Hub lie. Throws InputError naming the task and the
/// setting.
Task read_task(const Json& settings, const std::filesystem::path& folder, const DataFolders& data);

/// The number of examples before each question: what the task says, else `asked_for`, else 0. A
/// task that says 0 keeps it.
int64_t num_fewshot(const Task& task, std::optional<int64_t> asked_for);

/// "multiple_choice", ...
std::string name_of(OutputType output);

}  // namespace atl::tasks
