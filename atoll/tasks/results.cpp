#include "atoll/tasks/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "atoll/base/error.h"
#include "atoll/text/python_text.h"

namespace atl::tasks {
namespace {

constexpr const char* kFilter =
    ",none";  // Of lm-evaluation-harness's filters the one that is none.
constexpr const char* kNotKnown = "N/A";

Json task_result(const TaskOutcome& outcome, int64_t bootstrap_iters) {
  const Task& task = *outcome.task;
  Json result{{"name", task.name}, {"alias", task.alias}, {"sample_len", outcome.metrics.size()}};
  for (const Metric& metric : task.metrics) {
    std::vector<Json> values;
    for (const Json& of_document : outcome.metrics) values.push_back(of_document[metric.name]);
    try {
      result[metric.name + kFilter] = aggregate(metric, values);
      const auto error = standard_error(metric, values, bootstrap_iters);
      result[metric.name + "_stderr" + kFilter] = error ? Json(*error) : Json(kNotKnown);
    } catch (const InputError& error) {
      throw InputError(fmt::format("task '{}': {}", task.name, error.what()));
    }
  }
  return result;
}

/// The standard error of a group's mean from those of its tasks.
double pooled_error(const std::vector<double>& errors, const std::vector<double>& sizes,
                    bool weight_by_size) {
  double sum = 0;
  double count = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    const double square = errors[i] * errors[i];
    sum += weight_by_size ? (sizes[i] - 1) * square * sizes[i] : square;
    count += sizes[i];
  }
  const auto number = static_cast<double>(errors.size());
  return weight_by_size ? std::sqrt(sum / (count - number) / count) : std::sqrt(sum) / number;
}

class GroupScores {
 public:
  GroupScores(const std::vector<TaskGroup>& groups, const Json& tasks)
      : groups_(groups), tasks_(tasks) {}

  Json of(const TaskGroup& group) const {
    Json result{{"alias", group.alias}, {"name", group.name}};
    if (group.metrics.empty()) return result;
    const std::vector<std::string> tasks = leaves(group);
    int64_t documents = 0;
    for (const std::string& task : tasks) documents += tasks_[task]["sample_len"].get<int64_t>();
    result["sample_len"] = documents;
    Json counts = Json::object();
    for (const GroupMetric& metric : group.metrics) add(metric, tasks, result, counts);
    if (!counts.empty()) result["sample_count"] = counts;
    return result;
  }

 private:
  std::vector<std::string> leaves(const TaskGroup& group) const {
    std::vector<std::string> tasks;
    for (const std::string& member : group.members) {
      const auto inner = std::ranges::find(groups_, member, &TaskGroup::name);
      if (inner == groups_.end()) {
        tasks.push_back(member);
      } else {
        for (std::string& task : leaves(*inner)) tasks.push_back(std::move(task));
      }
    }
    return tasks;
  }

  void add(const GroupMetric& metric, const std::vector<std::string>& tasks, Json& result,
           Json& counts) const {
    const std::string key = metric.name + kFilter;
    const std::string error_key = metric.name + "_stderr" + kFilter;
    std::vector<double> errors;
    std::vector<double> sizes;
    double sum = 0;
    double weights = 0;
    for (const std::string& task : tasks) {
      const Json& scores = tasks_[task];
      if (!scores.contains(key)) continue;
      sizes.push_back(scores["sample_len"].get<double>());
      const double weight = metric.weight_by_size ? sizes.back() : 1;
      sum += scores[key].get<double>() * weight;
      weights += weight;
      if (scores[error_key].is_number()) errors.push_back(scores[error_key].get<double>());
    }
    if (sizes.empty()) return;
    result[key] = sum / weights;
    result[error_key] = errors.size() == sizes.size()
                            ? Json(pooled_error(errors, sizes, metric.weight_by_size))
                            : Json(kNotKnown);
    double count = 0;
    for (const double size : sizes) count += size;
    counts[key] = static_cast<int64_t>(count);
  }

  const std::vector<TaskGroup>& groups_;
  const Json& tasks_;
};

/// A group has its tasks' number of examples where it is the same, and their metrics' directions.
void add_groups(const std::vector<TaskGroup>& groups, Json& examples, Json& directions) {
  for (const TaskGroup& group : groups) {
    std::set<int64_t> numbers;
    Json merged = Json::object();
    for (const std::string& member : group.members) {
      if (examples.contains(member)) numbers.insert(examples[member].get<int64_t>());
      if (!directions.contains(member)) continue;
      for (const auto& [metric, direction] : directions[member].items()) {
        if (!merged.contains(metric)) {
          merged[metric] = direction;
        } else if (merged[metric] != direction) {
          merged[metric] = nullptr;
        }
      }
    }
    if (numbers.size() == 1) examples[group.name] = *numbers.begin();
    if (!merged.empty()) directions[group.name] = merged;
  }
}

/// Tasks under their groups, each list in alphabetical order.
class TableRows {
 public:
  explicit TableRows(const Json& results) : results_(results) {
    std::set<std::string> inner;
    for (const auto& [group, members] : results["group_subtasks"].items()) {
      for (const Json& member : members) inner.insert(member.get<std::string>());
    }
    std::set<std::string> outer;
    for (const auto& [name, scores] : results["results"].items()) {
      if (!inner.contains(name)) outer.insert(name);
    }
    for (const std::string& name : outer) {  // Groups first, as lm-evaluation-harness shows them.
      if (results["group_subtasks"].contains(name)) add(name, 0);
    }
    for (const std::string& name : outer) {
      if (!results["group_subtasks"].contains(name)) add(name, 0);
    }
  }
  using Row = std::array<std::string, 9>;
  const std::vector<Row>& rows() const { return rows_; }

 private:
  static std::string shown(const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    return value.is_number_float() ? fmt::format("{:.4f}", value.get<double>()) : value.dump();
  }

  void add(const std::string& name, size_t depth) {
    const Json& scores = results_["results"][name];
    std::string title = scores["alias"].get<std::string>();
    if (depth > 0) title = std::string(depth, ' ') + "- " + title;
    const Json& version = results_["versions"][name];
    std::string edition = version.is_string() ? version.get<std::string>() : version.dump();
    const std::string shots =
        results_["n-shot"].contains(name) ? results_["n-shot"][name].dump() : "";
    std::map<std::string, Json> sorted;
    for (const auto& [key, value] : scores.items()) {
      if (key.ends_with(kFilter) && !key.ends_with(std::string("_stderr") + kFilter)) {
        sorted[key.substr(0, key.size() - std::string(kFilter).size())] = value;
      }
    }
    if (sorted.empty()) rows_.push_back({title, edition, "none", shots, "", "", "", "", ""});
    for (const auto& [metric, value] : sorted) {
      const Json& error = scores[metric + "_stderr" + kFilter];
      const Json direction =
          results_["higher_is_better"].value(name, Json::object()).value(metric, Json(nullptr));
      const std::string arrow = direction == true ? "↑" : direction == false ? "↓" : "";
      rows_.push_back(
          {title, edition, "none", shots, metric, arrow, shown(value), "±", shown(error)});
      title.clear();
      edition.clear();
    }
    if (!results_["group_subtasks"].contains(name)) return;
    std::set<std::string> members;
    for (const Json& member : results_["group_subtasks"][name]) members.insert(member);
    for (const std::string& member : members) add(member, depth + 1);
  }

  const Json& results_;
  std::vector<Row> rows_;
};

}  // namespace

Json make_results(const std::vector<TaskOutcome>& outcomes, const std::vector<TaskGroup>& groups,
                  int64_t bootstrap_iters) {
  Json tasks = Json::object();
  Json configs = Json::object();
  Json versions = Json::object();
  Json examples = Json::object();
  Json directions = Json::object();
  Json samples = Json::object();
  for (const TaskOutcome& outcome : outcomes) {
    const Task& task = *outcome.task;
    tasks[task.name] = task_result(outcome, bootstrap_iters);
    configs[task.name] = task.config;
    configs[task.name]["num_fewshot"] = outcome.num_fewshot;
    versions[task.name] = task.version;
    examples[task.name] = outcome.num_fewshot;
    directions[task.name] = Json::object();
    for (const Metric& metric : task.metrics) {
      directions[task.name][metric.name] = metric.higher_is_better;
    }
    samples[task.name] = {{"original", outcome.num_documents},
                          {"effective", outcome.metrics.size()}};
  }
  Json members = Json::object();
  Json group_results = Json::object();
  const GroupScores scores(groups, tasks);
  Json all = tasks;
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {  // Inner ones first.
    all[group->name] = scores.of(*group);
    if (!group->metrics.empty()) group_results[group->name] = all[group->name];
    versions[group->name] = group->version;
  }
  for (const TaskGroup& group : groups) members[group.name] = group.members;
  add_groups(groups, examples, directions);
  Json results{{"results", all}};
  if (!group_results.empty()) results["groups"] = group_results;
  results["group_subtasks"] = members;
  results["configs"] = configs;
  results["versions"] = versions;
  results["n-shot"] = examples;
  results["higher_is_better"] = directions;
  results["n-samples"] = samples;
  return results;
}

Json make_sample(const Task& task, const Question& question, const Json& document,
                 const std::vector<Likelihood>& likelihoods, const Json& metrics) {
  Json arguments = Json::object();
  Json responses = Json::array();
  Json filtered = Json::array();
  for (size_t i = 0; i < question.requests.size(); ++i) {
    const Request& request = question.requests[i];
    Json& argument = arguments[fmt::format("gen_args_{}", i)];
    if (task.output == OutputType::kRolling) {
      argument["arg_0"] = request.continuation;
    } else {
      argument["arg_0"] = request.context;
      argument["arg_1"] = request.continuation;
    }
  }
  if (task.output == OutputType::kRolling) {
    double sum = 0;
    for (const Likelihood& likelihood : likelihoods) sum += likelihood.log_probability;
    filtered.push_back(fmt::format("{}", sum));
  } else {
    for (const Likelihood& likelihood : likelihoods) {
      filtered.push_back(
          {fmt::format("{}", likelihood.log_probability), likelihood.is_greedy ? "True" : "False"});
    }
  }
  for (const Json& answer : filtered) responses.push_back(Json::array({answer}));
  Json sample{{"task", task.name},
              {"doc_id", question.document},
              {"doc", document},
              {"target", question.target},
              {"arguments", arguments},
              {"resps", responses},
              {"filtered_resps", filtered},
              {"filter", "none"},
              {"metrics", Json::array()}};
  for (const auto& [metric, value] : metrics.items()) {
    sample["metrics"].push_back(metric);
    sample[metric] = value;
  }
  return sample;
}

std::string results_table(const Json& results) {
  constexpr size_t kNumColumns = 9;
  const TableRows::Row titles{"Tasks", "Version", "Filter", "n-shot", "Metric",
                              "",      "Value",   "",       "Stderr"};
  constexpr std::array<bool, kNumColumns> kRight{false, true, false, true, false,
                                                 false, true, false, true};
  std::vector<TableRows::Row> rows = TableRows(results).rows();
  rows.insert(rows.begin(), titles);
  std::array<size_t, kNumColumns> widths{};
  for (const TableRows::Row& row : rows) {
    for (size_t i = 0; i < kNumColumns; ++i) {
      widths[i] = std::max(widths[i], text::count_characters(row[i]));
    }
  }
  std::string table;
  for (size_t number = 0; number < rows.size(); ++number) {
    for (size_t i = 0; i < kNumColumns; ++i) {
      const std::string& cell = rows[number][i];
      const std::string space(widths[i] - text::count_characters(cell), ' ');
      table += kRight[i] ? "|" + space + cell : "|" + cell + space;
    }
    table += "|\n";
    if (number > 0) continue;
    for (size_t i = 0; i < kNumColumns; ++i) {
      table += "|" + std::string(widths[i] - (kRight[i] && widths[i] > 0 ? 1 : 0), '-') +
               (kRight[i] && widths[i] > 0 ? ":" : "");
    }
    table += "|\n";
  }
  return table;
}

}  // namespace atl::tasks
