#include "atoll/tasks/task_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "atoll/base/error.h"

namespace atl::tasks {
namespace {

struct KnownMetric {
  std::string_view name;
  std::vector<OutputType> outputs;
  Aggregation aggregation;
  bool higher_is_better;
};

const std::vector<KnownMetric>& known_metrics() {
  using enum OutputType;
  static const std::vector<KnownMetric> kMetrics{
      {"acc", {kMultipleChoice, kLogLikelihood}, Aggregation::kMean, true},
      {"acc_norm", {kMultipleChoice}, Aggregation::kMean, true},
      {"acc_bytes", {kMultipleChoice}, Aggregation::kMean, true},
      {"acc_mutual_info", {kMultipleChoice}, Aggregation::kMean, true},
      {"exact_match", {kMultipleChoice}, Aggregation::kMean, true},
      {"brier_score", {kMultipleChoice}, Aggregation::kBrierScore, false},
      {"f1", {kMultipleChoice}, Aggregation::kF1, true},
      {"mcc", {kMultipleChoice}, Aggregation::kMatthews, true},
      {"perplexity", {kLogLikelihood}, Aggregation::kPerplexity, false},
      {"word_perplexity", {kRolling}, Aggregation::kWeightedPerplexity, false},
      {"byte_perplexity", {kRolling}, Aggregation::kWeightedPerplexity, false},
      {"bits_per_byte", {kRolling}, Aggregation::kBitsPerByte, false},
  };
  return kMetrics;
}

std::string_view name_of(Aggregation aggregation) {
  switch (aggregation) {
    case Aggregation::kMean:
      return "mean";
    case Aggregation::kPerplexity:
      return "perplexity";
    case Aggregation::kWeightedPerplexity:
      return "weighted_perplexity";
    case Aggregation::kBitsPerByte:
      return "bits_per_byte";
    case Aggregation::kBrierScore:
      return "brier_score";
    case Aggregation::kF1:
      return "f1";
    case Aggregation::kMatthews:
      break;
  }
  return "matthews_corrcoef";
}

[[noreturn]] void fail(const std::string& what) { throw InputError(what); }

std::vector<Metric> usual_metrics(OutputType output) {
  std::vector<Metric> metrics;
  for (const KnownMetric& known : known_metrics()) {
    const bool is_usual = output == OutputType::kMultipleChoice
                              ? known.name == "acc" || known.name == "acc_norm"
                              : std::ranges::count(known.outputs, output) > 0;
    if (is_usual) {
      metrics.push_back({std::string(known.name), known.aggregation, known.higher_is_better});
    }
  }
  return metrics;
}

Metric read_metric(const Json& entry, OutputType output) {
  std::string name;
  if (entry.is_object() && entry.contains("metric")) {
    if (!entry["metric"].is_string()) fail("\"metric\" is not a text");
    name = entry["metric"].get<std::string>();
  }
  if (name.empty()) fail("\"metric_list\" has an entry without \"metric\"");
  const auto known = std::ranges::find(known_metrics(), name, &KnownMetric::name);
  if (known == known_metrics().end() || std::ranges::count(known->outputs, output) == 0) {
    std::string there;
    for (const KnownMetric& metric : known_metrics()) {
      if (std::ranges::count(metric.outputs, output) > 0) there += " " + std::string(metric.name);
    }
    fail(fmt::format("metric \"{}\" is not supported for {}; there are:{}", name, name_of(output),
                     there));
  }
  Metric metric{name, known->aggregation, known->higher_is_better};
  for (const auto& [key, value] : entry.items()) {
    if (key == "metric" || (key == "hf_evaluate" && value == false)) continue;
    if (key == "higher_is_better") {
      if (!value.is_boolean()) fail(fmt::format("{}: higher_is_better is not a boolean", name));
      metric.higher_is_better = value.get<bool>();
    } else if (key == "aggregation") {
      if (value != name_of(known->aggregation)) {
        fail(fmt::format("metric {}: aggregation {} is not supported; it is {}", name, value.dump(),
                         name_of(known->aggregation)));
      }
    } else {
      fail(fmt::format("metric {}: \"{}\" is not supported", name, key));
    }
  }
  return metric;
}

}  // namespace

std::vector<Metric> read_metrics(const Json& list, OutputType output) {
  if (list.is_null()) return usual_metrics(output);
  if (!list.is_array()) fail("\"metric_list\" is not a list");
  std::vector<Metric> metrics;
  for (const Json& entry : list) metrics.push_back(read_metric(entry, output));
  if (metrics.empty()) fail("\"metric_list\" is empty");
  return metrics;
}

}  // namespace atl::tasks
