// Expectations by hand; tests/oracle/lm_eval_oracle.py compares with lm-evaluation-harness.
#include "atoll/tasks/metrics.h"

#include <gmock/gmock.h>

#include <cmath>

#include "atoll/tasks/results.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::HasSubstr;

Metric metric(const std::string& name, Aggregation aggregation = Aggregation::kMean) {
  return {name, aggregation, true};
}

Task choices(const std::vector<std::string>& names) {
  Task task;
  for (const std::string& name : names) task.metrics.push_back(metric(name));
  return task;
}

TEST(MetricsTest, LengthsAreCharactersOrBytes) {
  Question question{
      .requests = std::vector<Request>(3), .choices = {"ab", "éééé", "abcdefg"}, .right = {1}};
  // By itself the first is the likeliest, by character the last, by byte the second.
  const std::vector<Likelihood> found{{-2.0, false}, {-3.0, true}, {-4.2, false}};
  const Json values =
      document_metrics(choices({"acc", "acc_norm", "acc_bytes", "exact_match"}), question, found);
  EXPECT_EQ(values.dump(), R"({"acc":0.0,"acc_norm":0.0,"acc_bytes":1.0,"exact_match":1})");
  question.right = {2};
  EXPECT_EQ(document_metrics(choices({"acc_norm"}), question, found)["acc_norm"], 1.0);
  question.right = {kNoChoice};
  EXPECT_EQ(document_metrics(choices({"acc", "exact_match"}), question, found).dump(),
            R"({"acc":0.0,"exact_match":0})");
}

TEST(MetricsTest, OfEquallyLikelyChoicesTheFirstCounts) {
  const Question question{.requests = std::vector<Request>(2), .choices = {"a", "b"}, .right = {0}};
  EXPECT_EQ(document_metrics(choices({"acc"}), question, {{-1, false}, {-1, false}})["acc"], 1.0);
}

TEST(MetricsTest, MutualInformationIsTheGainOverTheChoiceAlone) {
  const Question question{.requests = std::vector<Request>(4), .choices = {"a", "b"}, .right = {1}};
  const std::vector<Likelihood> found{{-1, false}, {-2, false}, {-1.5, false}, {-4, false}};
  EXPECT_EQ(document_metrics(choices({"acc", "acc_mutual_info"}), question, found).dump(),
            R"({"acc":0.0,"acc_mutual_info":1.0})");
}

TEST(MetricsTest, SeveralAnswersMayBeRight) {
  const Question question{.requests = std::vector<Request>(2),
                          .choices = {"a", "b"},
                          .right = {0, 1},
                          .several_right = true};
  EXPECT_EQ(
      document_metrics(choices({"acc", "exact_match"}), question, {{-1, false}, {-2, true}}).dump(),
      R"({"acc":1.0,"exact_match":1})");
}

TEST(MetricsTest, WordsAreCountedAsPythonSplitsThem) {
  Task task{.output = OutputType::kRolling, .metrics = {metric("word_perplexity")}};
  const auto words = [&](const std::string& text) {
    return document_metrics(task, Question{.target = text}, {{-1, false}})["word_perplexity"][1];
  };
  EXPECT_EQ(words("a b"), 2);
  EXPECT_EQ(words(" a\n\n b "), 4);
  EXPECT_EQ(words(""), 1);
  EXPECT_EQ(words(" "), 2);
  EXPECT_EQ(words("a\u00a0b\u2003c\x1c"
                  "d"),
            4);
}

TEST(MetricsTest, AggregationsAndErrors) {
  const std::vector<Json> four{1.0, 0.0, 0.0, 1.0};
  EXPECT_EQ(aggregate(metric("acc"), four), 0.5);
  EXPECT_NEAR(*standard_error(metric("acc"), four, 1), std::sqrt(1.0 / 3) / 2, 1e-12);
  EXPECT_FALSE(standard_error(metric("acc"), four, 0));
  EXPECT_FALSE(standard_error(metric("acc"), {1.0}, 1));
  EXPECT_NEAR(aggregate(metric("perplexity", Aggregation::kPerplexity), {-1.0, -2.0}),
              std::exp(1.5), 1e-12);
  const std::vector<Json> texts{Json::array({-8.0, 3}), Json::array({-2.0, 2})};
  EXPECT_NEAR(aggregate(metric("byte_perplexity", Aggregation::kWeightedPerplexity), texts),
              std::exp(2.0), 1e-12);
  EXPECT_NEAR(aggregate(metric("bits_per_byte", Aggregation::kBitsPerByte), texts),
              2.0 / std::log(2.0), 1e-12);
  EXPECT_FALSE(standard_error(metric("bits_per_byte", Aggregation::kBitsPerByte), texts, 1000));
}

TEST(MetricsTest, FirstClassScores) {
  // Right and guess: one hit, one miss, one false alarm, two rightly left alone.
  const std::vector<Json> pairs{{1, 1}, {1, 0}, {0, 1}, {0, 0}, {0, 0}};
  EXPECT_NEAR(aggregate(metric("f1", Aggregation::kF1), pairs), 0.5, 1e-12);
  EXPECT_NEAR(aggregate(metric("mcc", Aggregation::kMatthews), pairs), 1.0 / 6, 1e-12);
  EXPECT_EQ(aggregate(metric("mcc", Aggregation::kMatthews), {{0, 0}, {0, 0}}), 0.0);
  EXPECT_THAT(message_of([] { aggregate(metric("f1", Aggregation::kF1), {{2, 1}}); }),
              HasSubstr("f1 is for two choices"));
}

TEST(MetricsTest, BrierScoresNeedEquallyManyChoices) {
  const Metric brier = metric("brier_score", Aggregation::kBrierScore);
  EXPECT_NEAR(aggregate(brier, {{1, {0.25, 0.75}}, {0, {1.0, 0.0}}}), 0.0625, 1e-12);
  EXPECT_THAT(message_of([&] { aggregate(brier, {{1, {0.5, 0.5}}, {0, {1.0}}}); }),
              HasSubstr("equally many"));
  EXPECT_THAT(message_of([&] { aggregate(brier, {{kNoChoice, {0.5, 0.5}}}); }),
              HasSubstr("none of"));
}

TEST(ResultsTest, GroupsWeighTasksBySizeOrAlike) {
  Task small = choices({"acc"});
  small.name = small.alias = "small";
  small.version = 1;
  Task large = small;
  large.name = large.alias = "large";
  const std::vector<Json> one{{{"acc", 1.0}}, {{"acc", 1.0}}};
  const std::vector<Json> other{{{"acc", 0.0}}, {{"acc", 0.0}}, {{"acc", 0.0}}, {{"acc", 1.0}}};
  for (const bool weight_by_size : {true, false}) {
    const TaskGroup group{.name = "both",
                          .alias = "Both",
                          .version = "N/A",
                          .members = {"small", "large"},
                          .metrics = {{.name = "acc", .weight_by_size = weight_by_size}}};
    const Json results = make_results({{&small, 9, 0, one}, {&large, 4, 0, other}}, {group}, 1000);
    const Json& both = results["groups"]["both"];
    EXPECT_NEAR(both["acc,none"].get<double>(), weight_by_size ? 0.5 : 0.625, 1e-12);
    // large: deviation 0.5, error 0.25; small: 0.
    const double error = weight_by_size ? std::sqrt(3 * 0.0625 * 4 / 4 / 6) : 0.125;
    EXPECT_NEAR(both["acc_stderr,none"].get<double>(), error, 1e-12);
    EXPECT_EQ(results["n-samples"]["small"]["original"], 9);
    const std::string table = results_table(results);
    EXPECT_THAT(table, HasSubstr("|Both    |"));
    EXPECT_THAT(table, HasSubstr("| - large|"));
  }
}

}  // namespace
}  // namespace atl::tasks
