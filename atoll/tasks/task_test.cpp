#include "atoll/tasks/task.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A task with nothing wrong; `more` replaces settings, null takes them away.
Json settings(const Json& more = Json::object()) {
  Json json = Json::parse(R"({
    "task": "reefs", "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"train": "a.jsonl", "test": ["b.jsonl", "/c.jsonl"]}},
    "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "question",
    "doc_to_choice": ["a", "b"], "doc_to_target": "answer"})");
  for (const auto& [key, value] : more.items()) json[key] = value;
  return json;
}

Task task(const Json& more = Json::object()) { return read_task(settings(more), "/folder", {}); }
std::string refusal(const Json& more) {
  return message_of([&] { task(more); });
}

TEST(TaskTest, WhatASettingLeavesOutIsLmEvaluationHarnesss) {
  const Task plain = task();
  EXPECT_EQ(plain.name, "reefs");
  EXPECT_EQ(plain.alias, "reefs");
  EXPECT_EQ(plain.version, "Yaml");
  EXPECT_EQ(plain.split, "test");
  EXPECT_EQ(plain.source, "test");
  EXPECT_FALSE(
      plain.leaves_out_asked);  // No split of the examples is named, and one that is asked.
  EXPECT_EQ(plain.sampler, Sampler::kDefault);
  EXPECT_EQ(plain.asked.target_delimiter, " ");
  EXPECT_EQ(plain.example.fewshot_delimiter, "\n\n");
  EXPECT_THAT(plain.data_files.at("test"), ElementsAre("/folder/b.jsonl", "/c.jsonl"));
  ASSERT_EQ(plain.metrics.size(), 2U);
  EXPECT_EQ(plain.metrics[0].name, "acc");
  EXPECT_EQ(plain.metrics[1].name, "acc_norm");
  EXPECT_EQ(plain.config["fewshot_config"]["doc_to_text"], "question");
}

TEST(TaskTest, ExamplesComeFromTheSplitThatLmEvaluationHarnessTakes) {
  EXPECT_EQ(task({{"training_split", "train"}}).source, "train");
  EXPECT_EQ(task({{"fewshot_split", "train"}}).source, "train");
  EXPECT_TRUE(task({{"fewshot_split", "test"}}).leaves_out_asked);
  const Task validated = task({{"test_split", nullptr}, {"validation_split", "test"}});
  EXPECT_EQ(validated.split, "test");
  EXPECT_TRUE(validated.leaves_out_asked);  // Neither is named: they count as the same.
  const Task written = task({{"fewshot_config", {{"samples", {{{"question", "x"}}}}}}});
  EXPECT_FALSE(written.source);
  EXPECT_EQ(written.samples.size(), 1U);
}

TEST(TaskTest, ExamplesMayBeWordedInAnotherWay) {
  const Task other =
      task({{"target_delimiter", "-"},
            {"fewshot_config",
             {{"sampler", "first_n"}, {"doc_to_text", "other"}, {"fewshot_delimiter", "#"}}}});
  EXPECT_EQ(other.sampler, Sampler::kFirstN);
  EXPECT_EQ(other.example.text, "other");
  EXPECT_EQ(other.example.target_delimiter, "-");
  EXPECT_EQ(other.example.fewshot_delimiter, "#");
  EXPECT_EQ(other.asked.text, "question");
  EXPECT_EQ(other.asked.fewshot_delimiter, "\n\n");
}

TEST(TaskTest, WhatIsNotThereIsRefusedByName) {
  const std::pair<Json, const char*> cases[] = {
      {{{"colour", 1}}, "unknown setting \"colour\""},
      {{{"process_docs", "x"}}, "\"process_docs\" is no !function"},
      {{{"description", {{"!function", "a.b"}, {"file", "/c"}}}}, "\"description\": !function"},
      {{{"metric_list", {{{"metric", "acc"}, {"aggregation", {{"!function", "a.b"}}}}}}},
       "\"metric_list\": !function"},
      {{{"process_results", "x"}}, "\"process_results\""},
      {{{"filter_list", Json::array()}}, "\"filter_list\""},
      {{{"generation_kwargs", {{"until", "x"}}}}, "\"generation_kwargs\""},
      {{{"use_prompt", "x"}}, "\"use_prompt\""},
      {{{"dataset_name", "x"}}, "\"dataset_name\" names a part of a data set of the Hub"},
      {{{"doc_to_image", "x"}}, "\"doc_to_image\""},
      {{{"class", "x"}}, "\"class\""},
      {{{"unsafe_code", true}}, "\"unsafe_code\""},
      {{{"repeats", 2}}, "\"repeats\""},
      {{{"output_type", "generate_until"}}, "output_type \"generate_until\" is not supported"},
      {{{"output_type", nullptr}}, "output_type \"generate_until\""},
      {{{"dataset_path", "EleutherAI/arc"}}, "--data EleutherAI/arc=FOLDER"},
      {{{"dataset_kwargs", nullptr}}, "no \"data_files\""},
      {{{"dataset_kwargs", {{"data_files", "x"}, {"field", "y"}}}}, "\"field\" is not supported"},
      {{{"dataset_kwargs", {{"data_files", {{"test", 1}}}}}}, "no name of a file"},
      {{{"test_split", "dev"}}, "test_split is \"dev\", and its data has: test train"},
      {{{"test_split", nullptr}}, "neither \"test_split\""},
      {{{"fewshot_split", "dev"}}, "the split of the examples is \"dev\", and its data has"},
      {{{"fewshot_config", {{"sampler", "balanced"}}}}, "sampler \"balanced\""},
      {{{"fewshot_config", {{"fewshot_indices", {1}}}}}, "\"fewshot_indices\""},
      {{{"fewshot_config", {{"process_docs", "x"}}}}, "\"process_docs\""},
      {{{"fewshot_config", {{"samples", "x"}}}}, "\"samples\" is not a list"},
      {{{"fewshot_config", {{"colour", "x"}}}}, "fewshot_config: unknown setting \"colour\""},
      {{{"metric_list", {{{"metric", "bleu"}}}}}, "metric \"bleu\" is not supported"},
      {{{"metric_list", {{{"metric", "perplexity"}}}}}, "for multiple_choice; there are: acc"},
      {{{"metric_list", {{{"metric", "acc"}, {"aggregation", "median"}}}}},
       "aggregation \"median\""},
      {{{"metric_list", {{{"metric", "acc"}, {"ignore_case", true}}}}}, "\"ignore_case\""},
      {{{"metric_list", {{{"metric", "acc"}, {"hf_evaluate", true}}}}}, "\"hf_evaluate\""},
      {{{"metric_list", {{{"name", "acc"}}}}}, "without \"metric\""},
      {{{"metric_list", Json::array()}}, "is empty"},
      {{{"doc_to_target", nullptr}}, "\"doc_to_target\" is missing"},
      {{{"doc_to_text", nullptr}}, "\"doc_to_text\" is missing"},
      {{{"doc_to_choice", nullptr}}, "\"doc_to_choice\" is missing"},
      {{{"doc_to_text", {{"a", 1}}}}, "\"doc_to_text\" is object"},
      {{{"doc_to_choice", 3}}, "\"doc_to_choice\" is number"},
      {{{"num_fewshot", -1}}, "\"num_fewshot\" is not a number from 0"},
      {{{"num_fewshot", "all"}}, "\"num_fewshot\""},
      {{{"description", 3}}, "\"description\" is not a text"},
      {{{"metadata", 3}}, "\"metadata\""},
      {{{"output_type", "loglikelihood"}}, "\"doc_to_choice\" has no place in loglikelihood"},
      {{{"output_type", "loglikelihood_rolling"}, {"doc_to_choice", nullptr}, {"num_fewshot", 1}},
       "\"num_fewshot\" has no place"},
  };
  for (const auto& [more, expected] : cases) {
    EXPECT_THAT(refusal(more), AllOf(HasSubstr("task 'reefs'"), HasSubstr(expected))) << more;
  }
  EXPECT_THAT(refusal({{"task", nullptr}}), HasSubstr("\"task\", its name, is missing"));
}

TEST(TaskTest, TheCommandLinesExamplesGiveWayToNone) {
  EXPECT_EQ(num_fewshot(task(), std::nullopt), 0);
  EXPECT_EQ(num_fewshot(task(), 3), 3);
  EXPECT_EQ(num_fewshot(task({{"num_fewshot", 5}}), std::nullopt), 5);
  EXPECT_EQ(num_fewshot(task({{"num_fewshot", 5}}), 0), 0);
  EXPECT_EQ(num_fewshot(task({{"num_fewshot", 0}}), 3), 0);
  const Task rolling = task({{"output_type", "loglikelihood_rolling"}, {"doc_to_choice", nullptr}});
  EXPECT_THAT(message_of<UsageError>([&] { num_fewshot(rolling, 2); }), HasSubstr("--num-fewshot"));
}

}  // namespace
}  // namespace atl::tasks
