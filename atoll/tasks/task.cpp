#include "atoll/tasks/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/tasks/task_data.h"
#include "atoll/tasks/task_metrics.h"

namespace atl::tasks {
namespace {

namespace fs = std::filesystem;

struct Refused {
  std::string_view key;
  std::string_view why;
};

constexpr Refused kRefused[] = {
    {"class", "tasks in Python are not supported"},
    {"custom_dataset", "functions in Python are not supported"},
    {"doc_to_audio", "models here read text"},
    {"doc_to_image", "models here read text"},
    {"filter_list", "answers that a model writes freely, which filters are for, are not supported"},
    {"generation_kwargs", "answers that a model writes freely are not supported"},
    {"group", "a group's file lists its tasks; a task says its groups with tag"},
    {"process_results", "functions in Python are not supported"},
    {"task_list", "not supported; write one file per task"},
    {"use_prompt", "promptsource is not supported; write doc_to_text and doc_to_target"},
};

/// The order in which lm-evaluation-harness prints them.
constexpr std::string_view kKeys[] = {
    "task",
    "task_alias",
    "tag",
    "dataset_path",
    "dataset_name",
    "dataset_kwargs",
    "training_split",
    "validation_split",
    "test_split",
    "fewshot_split",
    "process_docs",
    "doc_to_text",
    "doc_to_target",
    "unsafe_code",
    "doc_to_choice",
    "description",
    "target_delimiter",
    "fewshot_delimiter",
    "fewshot_config",
    "num_fewshot",
    "metric_list",
    "output_type",
    "repeats",
    "should_decontaminate",
    "doc_to_decontamination_query",
    "gen_prefix",
    "metadata",
};

constexpr std::string_view kFewshotKeys[] = {
    "sampler",          "split",         "process_docs",  "fewshot_indices", "samples",
    "doc_to_text",      "doc_to_choice", "doc_to_target", "gen_prefix",      "fewshot_delimiter",
    "target_delimiter",
};

constexpr std::string_view kFunctionKeys[] = {"process_docs", "doc_to_text", "doc_to_target",
                                              "doc_to_choice"};

class TaskReader {
 public:
  TaskReader(const Json& settings, const fs::path& folder, const DataFolders& data)
      : folder_(folder), data_(data) {
    for (const auto& [key, value] : settings.items()) {  // null: as if it were not there.
      if (!value.is_null()) settings_[key] = value;
    }
    name_ = settings_.contains("task") && settings_["task"].is_string()
                ? settings_["task"].get<std::string>()
                : "(without a name)";
  }

  Task read() {
    check_keys();
    Task task;
    task.name = text("task").value_or("");
    if (task.name.empty()) fail("\"task\", its name, is missing");
    task.alias = text("task_alias").value_or(task.name);
    task.version = "Yaml";
    if (settings_.contains("metadata")) {
      if (!settings_["metadata"].is_object()) fail("\"metadata\" is not a mapping");
      if (settings_["metadata"].contains("version"))
        task.version = settings_["metadata"]["version"];
    }
    task.output = read_output();
    task.data_files = data_files();
    task.description = text("description").value_or("");
    task.num_fewshot = count("num_fewshot");
    read_wordings(task);
    read_splits(task);
    task.metrics = metrics(task.output);
    check_combination(task);
    task.config = printed(task);
    return task;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("task '{}': {}", name_, what));
  }
  [[noreturn]] void unsupported(std::string_view key, std::string_view why) const {
    fail(fmt::format("\"{}\" is not supported: {}", key, why));
  }

  void check_keys() {
    for (const Refused& refused : kRefused) {
      if (settings_.contains(refused.key)) unsupported(refused.key, refused.why);
    }
    for (const auto& [key, value] : settings_.items()) {
      if (std::ranges::find(kKeys, key) == std::end(kKeys)) {
        fail(fmt::format("unknown setting \"{}\"", key));
      }
    }
    check_functions(settings_, "");
    if (settings_.value("unsafe_code", Json(false)) != false) {
      unsupported("unsafe_code", "no code is run");
    }
    if (settings_.value("repeats", Json(1)) != 1) {
      unsupported("repeats", "a likelihood is the same each time");
    }
  }

  /// Functions may stand where a document becomes something.
  void check_functions(const Json& object, const std::string& where) const {
    for (const auto& [key, value] : object.items()) {
      if (key == "fewshot_config" && value.is_object() && where.empty()) {
        check_functions(value, "fewshot_config: ");
      } else if (has_function(value) &&
                 !(is_function(value) && std::ranges::count(kFunctionKeys, key) > 0)) {
        fail(
            fmt::format("{}\"{}\": !function is not supported here: no Python is run", where, key));
      }
    }
  }

  SplitFiles data_files() const {
    try {
      return read_task_data(settings_, folder_, data_);
    } catch (const InputError& error) {
      fail(error.what());
    }
  }

  /// Null where the setting is none.
  NativeFunction function(const Json& object, const char* key) const {
    const Json value = object.value(key, Json());
    if (value.is_null()) return nullptr;
    if (!is_function(value)) fail(fmt::format("\"{}\" is no !function", key));
    try {
      return known_function(value).call;
    } catch (const InputError& error) {
      fail(fmt::format("\"{}\": {}", key, error.what()));
    }
  }

  std::optional<std::string> text(std::string_view key) const { return text(settings_, key); }
  std::optional<std::string> text(const Json& object, std::string_view key) const {
    if (!object.contains(key)) return std::nullopt;
    if (!object[std::string(key)].is_string()) fail(fmt::format("\"{}\" is not a text", key));
    return object[std::string(key)].get<std::string>();
  }

  std::optional<int64_t> count(const std::string& key) const {
    if (!settings_.contains(key)) return std::nullopt;
    constexpr int64_t kMost = 1 << 20;
    const Json& value = settings_[key];
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kMost) {
      fail(fmt::format("\"{}\" is not a number from 0 to {}", key, kMost));
    }
    return value.get<int64_t>();
  }

  OutputType read_output() const {
    const std::string name = text("output_type").value_or("generate_until");
    for (const OutputType output :
         {OutputType::kMultipleChoice, OutputType::kLogLikelihood, OutputType::kRolling}) {
      if (name == name_of(output)) return output;
    }
    fail(
        fmt::format("output_type \"{}\" is not supported: this version has multiple_choice, "
                    "loglikelihood and loglikelihood_rolling",
                    name));
  }

  Wording wording(const Json& object) const {
    const auto given = [&](const char* key) {
      return object.contains(key) ? object[key] : Json(nullptr);
    };
    const auto call = [&](const char* key) {
      return is_function(given(key)) ? function(object, key) : nullptr;
    };
    Wording wording{.text = given("doc_to_text"),
                    .choice = given("doc_to_choice"),
                    .target = given("doc_to_target"),
                    .prefix = text(object, "gen_prefix"),
                    .text_function = call("doc_to_text"),
                    .choice_function = call("doc_to_choice"),
                    .target_function = call("doc_to_target")};
    wording.target_delimiter = text(object, "target_delimiter").value_or(wording.target_delimiter);
    wording.fewshot_delimiter =
        text(object, "fewshot_delimiter").value_or(wording.fewshot_delimiter);
    const auto check = [&](const char* key, const Json& value, bool is_allowed) {
      if (value.is_null() || value.is_string() || is_function(value) || is_allowed) return;
      fail(fmt::format("\"{}\" is {}, which it cannot be", key, value.type_name()));
    };
    check("doc_to_text", wording.text, wording.text.is_number_integer());
    check("doc_to_target", wording.target,
          wording.target.is_number_integer() || wording.target.is_array());
    check("doc_to_choice", wording.choice, wording.choice.is_array() || wording.choice.is_object());
    return wording;
  }

  void read_wordings(Task& task) {
    task.change = function(settings_, "process_docs");
    task.asked = wording(settings_);
    if (task.asked.target.is_null()) fail("\"doc_to_target\" is missing");
    if (task.output != OutputType::kRolling && task.asked.text.is_null()) {
      fail("\"doc_to_text\" is missing");
    }
    Json given = settings_.value("fewshot_config", Json::object());
    if (!given.is_object()) fail("\"fewshot_config\" is not a mapping");
    for (const auto& [key, value] : given.items()) {
      if (std::ranges::find(kFewshotKeys, key) == std::end(kFewshotKeys)) {
        fail(fmt::format("fewshot_config: unknown setting \"{}\"", key));
      }
    }
    if (!given.value("fewshot_indices", Json()).is_null()) {
      fail(
          "fewshot_config: \"fewshot_indices\" is not supported: lm-evaluation-harness 0.4.13 "
          "passes over it; write sampler: first_n, or samples");
    }
    // What it leaves out is as for the document that is asked about.
    fewshot_ = Json::object();
    for (const std::string_view view : kFewshotKeys) {
      const std::string key(view);
      const std::string general = key == "split" ? "fewshot_split" : key;
      fewshot_[key] = given.contains(key)           ? given[key]
                      : settings_.contains(general) ? settings_[general]
                                                    : Json(nullptr);
    }
    if (fewshot_["sampler"].is_null()) fewshot_["sampler"] = "default";
    if (fewshot_["target_delimiter"].is_null()) fewshot_["target_delimiter"] = " ";
    if (fewshot_["fewshot_delimiter"].is_null()) fewshot_["fewshot_delimiter"] = "\n\n";
    Json present = fewshot_;
    for (const auto& [key, value] : fewshot_.items()) {
      if (value.is_null()) present.erase(key);
    }
    task.example = wording(present);
    task.change_example = function(present, "process_docs");
    const std::string sampler = text(present, "sampler").value_or("");
    if (sampler != "default" && sampler != "first_n") {
      fail(
          fmt::format("fewshot_config: sampler \"{}\" is not supported: this version has default "
                      "and first_n",
                      sampler));
    }
    task.sampler = sampler == "first_n" ? Sampler::kFirstN : Sampler::kDefault;
  }

  /// Which documents are asked about, and which are examples: lm-evaluation-harness's rules.
  void read_splits(Task& task) const {
    // Of a data set of the Hub a task may name more splits than it needs.
    const bool has_own_files =
        settings_.value("dataset_kwargs", Json::object()).contains("data_files");
    const auto split = [&](const char* key) {
      std::optional<std::string> name = text(key);
      if (name && has_own_files) require_split(task, key, *name);
      return name;
    };
    const auto test = split("test_split");
    const auto validation = split("validation_split");
    const auto training = split("training_split");
    if (!test && !validation) fail("neither \"test_split\" nor \"validation_split\" is there");
    task.split = test ? *test : *validation;
    require_split(task, test ? "test_split" : "validation_split", task.split);
    std::optional<std::string> fewshot;
    if (!fewshot_["split"].is_null()) {
      fewshot = text(fewshot_, "split");
      if (has_own_files) require_split(task, "the split of the examples", *fewshot);
    }
    task.leaves_out_asked = fewshot == test;
    if (fewshot) {
      task.source = fewshot;
    } else if (!fewshot_["samples"].is_null()) {
      if (!fewshot_["samples"].is_array()) fail("fewshot_config: \"samples\" is not a list");
      for (const Json& sample : fewshot_["samples"]) {
        if (!sample.is_object())
          fail("fewshot_config: \"samples\" has something that is no mapping");
        task.samples.push_back(sample);
      }
    } else {
      task.source = training ? training : validation ? validation : test;
      task.change_example = task.change;
    }
  }

  void require_split(const Task& task, const char* key, const std::string& name) const {
    if (files_of(task.data_files, name) != nullptr) return;
    std::string there;
    for (const auto& [known, files] : task.data_files) there += " " + known;
    fail(fmt::format("{} is \"{}\", and its data has:{}", key, name, there));
  }

  std::vector<Metric> metrics(OutputType output) const {
    try {
      return read_metrics(settings_.value("metric_list", Json()), output);
    } catch (const InputError& error) {
      fail(error.what());
    }
  }

  void check_combination(const Task& task) const {
    const bool has_choices = !task.asked.choice.is_null();
    if (task.output == OutputType::kMultipleChoice && !has_choices) {
      fail("\"doc_to_choice\" is missing");
    }
    if (task.output != OutputType::kMultipleChoice && has_choices) {
      fail(fmt::format("\"doc_to_choice\" has no place in {}", name_of(task.output)));
    }
    if (task.output == OutputType::kRolling) {
      if (task.num_fewshot.value_or(0) > 0) {
        fail("\"num_fewshot\" has no place in loglikelihood_rolling: the text stands alone");
      }
      if (task.asked.prefix) fail("\"gen_prefix\" has no place in loglikelihood_rolling");
    }
  }

  /// As TaskConfig.to_dict() of lm-evaluation-harness.
  Json printed(const Task& task) const {
    Json config = Json::object();
    const Json defaults{
        {"unsafe_code", false},        {"description", ""}, {"target_delimiter", " "},
        {"fewshot_delimiter", "\n\n"}, {"repeats", 1},      {"should_decontaminate", false},
        {"metadata", Json::object()}};
    for (const std::string_view view : kKeys) {
      const std::string key(view);
      if (key == "tag") continue;
      if (key == "fewshot_config") {
        config[key] = fewshot_;
      } else if (settings_.contains(key)) {
        config[key] = settings_[key];
      } else if (defaults.contains(key)) {
        config[key] = defaults[key];
      }
    }
    config["output_type"] = name_of(task.output);
    for (Json* object : {&config, &config["fewshot_config"]}) {
      for (auto& [key, value] : object->items()) {
        if (is_function(value)) value = known_function(value).source;
      }
    }
    return config;
  }

  fs::path folder_;
  const DataFolders& data_;
  Json settings_ = Json::object();
  std::string name_;
  Json fewshot_;
};

}  // namespace

std::string name_of(OutputType output) {
  switch (output) {
    case OutputType::kMultipleChoice:
      return "multiple_choice";
    case OutputType::kLogLikelihood:
      return "loglikelihood";
    case OutputType::kRolling:
      break;
  }
  return "loglikelihood_rolling";
}

Task read_task(const Json& settings, const fs::path& folder, const DataFolders& data) {
  return TaskReader(settings, folder, data).read();
}

int64_t num_fewshot(const Task& task, std::optional<int64_t> asked_for) {
  if (!asked_for || task.num_fewshot == 0) return task.num_fewshot.value_or(0);
  if (task.output == OutputType::kRolling && *asked_for > 0) {
    throw UsageError(
        fmt::format("--num-fewshot: task '{}' is loglikelihood_rolling, where the text "
                    "stands alone",
                    task.name));
  }
  return *asked_for;
}

}  // namespace atl::tasks
