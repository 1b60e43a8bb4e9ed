#include "atoll/tasks/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/tasks/python_random.h"
#include "atoll/text/python_text.h"

namespace atl::tasks {
namespace {

/// The words of a text as re.split(r"\s+", text) counts them, empty ones at the ends included.
int64_t count_words(std::string_view text) {
  if (text.empty()) return 1;
  return static_cast<int64_t>(text::split(text, std::nullopt, -1).size()) +
         static_cast<int64_t>(text::strip(text, text::Side::kLeft).size() < text.size()) +
         static_cast<int64_t>(text::strip(text, text::Side::kRight).size() < text.size());
}

/// The first of the largest.
int64_t place_of_largest(const std::vector<double>& values) {
  return std::ranges::max_element(values) - values.begin();
}

std::vector<double> shares(const std::vector<double>& logs) {
  const double largest = *std::ranges::max_element(logs);
  std::vector<double> result;
  for (const double log : logs) result.push_back(std::exp(log - largest));
  const double sum = std::accumulate(result.begin(), result.end(), 0.0);
  for (double& share : result) share /= sum;
  return result;
}

Json choice_metrics(const Task& task, const Question& question,
                    const std::vector<Likelihood>& likelihoods) {
  const size_t count = question.choices.size();
  std::vector<double> logs;
  std::vector<double> by_length;
  std::vector<double> by_bytes;
  std::vector<double> against_alone;  // The gain over the choice's likelihood without a context.
  for (size_t i = 0; i < count; ++i) {
    const std::string& choice = question.choices[i];
    const double log = likelihoods[i].log_probability;
    logs.push_back(log);
    by_length.push_back(log / static_cast<double>(text::count_characters(choice)));
    by_bytes.push_back(log / static_cast<double>(choice.size()));
    if (likelihoods.size() == 2 * count) {
      against_alone.push_back(log - likelihoods[count + i].log_probability);
    }
  }
  const auto is_right = [&](const std::vector<double>& scores) {
    return std::ranges::count(question.right, place_of_largest(scores)) > 0 ? 1.0 : 0.0;
  };
  const auto is_greedy = [&](int64_t place) {
    return place != kNoChoice && likelihoods[static_cast<size_t>(place)].is_greedy;
  };
  const int64_t right = question.right.empty() ? kNoChoice : question.right[0];
  Json values = Json::object();
  for (const Metric& metric : task.metrics) {
    Json& value = values[metric.name];
    if (metric.name == "acc") {
      value = is_right(logs);
    } else if (metric.name == "acc_norm") {
      value = is_right(by_length);
    } else if (metric.name == "acc_bytes") {
      value = is_right(by_bytes);
    } else if (metric.name == "acc_mutual_info") {
      value = is_right(against_alone);
    } else if (metric.name == "exact_match") {
      value = std::ranges::any_of(question.right, is_greedy) ? 1 : 0;
    } else if (metric.name == "brier_score") {
      value = Json::array({right, shares(logs)});
    } else {  // f1, mcc.
      value = Json::array({right, place_of_largest(logs)});
    }
  }
  return values;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_deviation(const std::vector<double>& values) {
  const double middle = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - middle) * (value - middle);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

using Pair = std::pair<int64_t, int64_t>;  // Right answer, guess.

double f1_score(const std::vector<Pair>& pairs) {
  int64_t both = 0;
  int64_t either = 0;  // Counting those that are both twice.
  for (const auto& [right, guess] : pairs) {
    both += static_cast<int64_t>(right == 1 && guess == 1);
    either += static_cast<int64_t>(right == 1) + static_cast<int64_t>(guess == 1);
  }
  return either == 0 ? 0 : 2.0 * static_cast<double>(both) / static_cast<double>(either);
}

double matthews(const std::vector<Pair>& pairs) {
  std::map<int64_t, std::pair<double, double>> counts;  // By class: right, guessed.
  double hits = 0;
  for (const auto& [right, guess] : pairs) {
    ++counts[right].first;
    ++counts[guess].second;
    hits += static_cast<double>(right == guess);
  }
  const auto count = static_cast<double>(pairs.size());
  double both = hits * count;
  double rights = count * count;
  double guesses = count * count;
  for (const auto& [name, found] : counts) {
    both -= found.first * found.second;
    rights -= found.first * found.first;
    guesses -= found.second * found.second;
  }
  return rights * guesses == 0 ? 0 : both / std::sqrt(rights * guesses);
}

double brier_score(const std::vector<Json>& values) {
  double total = 0;
  const size_t count = values.front()[1].size();
  for (const Json& value : values) {
    const auto right = value[0].get<int64_t>();
    const auto guess = value[1].get<std::vector<double>>();
    if (guess.size() != count)
      throw InputError("brier_score needs equally many choices everywhere");
    if (right == kNoChoice) throw InputError("brier_score: an answer is none of the choices");
    for (size_t i = 0; i < count; ++i) {
      const double distance = guess[i] - (std::cmp_equal(i, right) ? 1.0 : 0.0);
      total += distance * distance;
    }
  }
  return total / static_cast<double>(values.size());
}

/// The score of some of the documents, by their places: a bootstrap takes many such samples.
class Scorer {
 public:
  Scorer(const Metric& metric, const std::vector<Json>& values) : aggregation_(metric.aggregation) {
    for (const Json& value : values) {
      if (value.is_number()) {
        numbers_.push_back(value.get<double>());
      } else {
        pairs_.emplace_back(value[0].get<int64_t>(), value[1].get<int64_t>());
      }
    }
    const auto is_other = [](const Pair& pair) {
      return pair.first < 0 || pair.first > 1 || pair.second > 1;
    };
    if (aggregation_ == Aggregation::kF1 && std::ranges::any_of(pairs_, is_other)) {
      throw InputError("f1 is for two choices, one of which is right");
    }
  }

  double score(const std::vector<size_t>& places) {
    sample_.clear();
    sampled_pairs_.clear();
    for (const size_t place : places) {
      if (numbers_.empty()) {
        sampled_pairs_.push_back(pairs_[place]);
      } else {
        sample_.push_back(numbers_[place]);
      }
    }
    switch (aggregation_) {
      case Aggregation::kPerplexity:
        return std::exp(-mean(sample_));
      case Aggregation::kF1:
        return f1_score(sampled_pairs_);
      case Aggregation::kMatthews:
        return matthews(sampled_pairs_);
      default:
        return mean(sample_);
    }
  }

 private:
  Aggregation aggregation_;
  std::vector<double> numbers_;
  std::vector<Pair> pairs_;
  std::vector<double> sample_;
  std::vector<Pair> sampled_pairs_;
};

}  // namespace

Json document_metrics(const Task& task, const Question& question,
                      const std::vector<Likelihood>& likelihoods) {
  ATOLL_CHECK(task.output == OutputType::kRolling ||
              likelihoods.size() == question.requests.size());
  if (task.output == OutputType::kMultipleChoice) {
    return choice_metrics(task, question, likelihoods);
  }
  Json values = Json::object();
  double log_probability = 0;  // Of a whole text: of all its windows.
  for (const Likelihood& likelihood : likelihoods) log_probability += likelihood.log_probability;
  const std::string text = question.target;
  for (const Metric& metric : task.metrics) {
    Json& value = values[metric.name];
    if (metric.name == "acc") {
      value = likelihoods.front().is_greedy ? 1 : 0;
    } else if (metric.name == "perplexity") {
      value = log_probability;
    } else if (metric.name == "word_perplexity") {
      value = Json::array({log_probability, count_words(text)});
    } else {
      value = Json::array({log_probability, static_cast<int64_t>(text.size())});
    }
  }
  return values;
}

double aggregate(const Metric& metric, const std::vector<Json>& values) {
  ATOLL_CHECK(!values.empty());
  if (metric.aggregation == Aggregation::kBrierScore) return brier_score(values);
  if (metric.aggregation == Aggregation::kWeightedPerplexity ||
      metric.aggregation == Aggregation::kBitsPerByte) {
    double likelihoods = 0;
    double weights = 0;
    for (const Json& value : values) {
      likelihoods += value[0].get<double>();
      weights += value[1].get<double>();
    }
    const double per_weight = -likelihoods / weights;
    return metric.aggregation == Aggregation::kBitsPerByte ? per_weight / std::numbers::ln2
                                                           : std::exp(per_weight);
  }
  std::vector<size_t> all(values.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return Scorer(metric, values).score(all);
}

std::optional<double> standard_error(const Metric& metric, const std::vector<Json>& values,
                                     int64_t bootstrap_iters) {
  if (values.size() < 2 || bootstrap_iters == 0) return std::nullopt;
  if (metric.aggregation == Aggregation::kMean) {
    std::vector<double> numbers;
    for (const Json& value : values) numbers.push_back(value.get<double>());
    return sample_deviation(numbers) / std::sqrt(static_cast<double>(numbers.size()));
  }
  if (metric.aggregation != Aggregation::kPerplexity && metric.aggregation != Aggregation::kF1 &&
      metric.aggregation != Aggregation::kMatthews) {
    return std::nullopt;
  }
  // In portions of a thousand, each with a seed of its own.
  const int64_t portion = std::min<int64_t>(1000, bootstrap_iters);
  Scorer scorer(metric, values);
  std::vector<double> scores;
  std::vector<size_t> places(values.size());
  const auto count = static_cast<double>(values.size());
  for (int64_t seed = 0; seed < bootstrap_iters / portion; ++seed) {
    PythonRandom random(static_cast<uint32_t>(seed));
    for (int64_t i = 0; i < portion; ++i) {
      for (size_t& place : places) place = static_cast<size_t>(random.uniform() * count);
      scores.push_back(scorer.score(places));
    }
  }
  return sample_deviation(scores);
}

}  // namespace atl::tasks
