#include "atoll/tasks/prompts.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PromptsTest : public ::testing::Test {
 protected:
  PromptsTest() {
    folder_.write("d.jsonl",
                  "{\"q\": \"Q0\", \"t\": 0, \"w\": [\"x\", \"y y\"]}\n"
                  "{\"q\": \"Q1\", \"t\": 1, \"w\": [\"z\", \"it's\"]}\n"
                  "{\"q\": \"Q2\", \"t\": 1, \"w\": [\"u\", \"v\"]}\n");
  }

  Task task(const Json& more = Json::object()) const {
    Json json = Json::parse(R"({
      "task": "reefs", "dataset_path": "json", "test_split": "test",
      "dataset_kwargs": {"data_files": {"test": "d.jsonl"}}, "output_type": "multiple_choice",
      "doc_to_text": "{{q}}?", "doc_to_choice": "w", "doc_to_target": "t"})");
    for (const auto& [key, value] : more.items()) json[key] = value;
    return read_task(json, folder_.path(), {});
  }
  std::vector<Question> ask(const Json& more, int64_t num_fewshot = 0) const {
    const Task made = task(more);
    return TaskPrompts(made, num_fewshot).questions(100);
  }
  std::string refusal(const Json& more, int64_t num_fewshot = 0) const {
    return message_of([&] { ask(more, num_fewshot); });
  }

  TestFolder folder_;
};

TEST_F(PromptsTest, AChoiceFollowsItsQuestion) {
  const std::vector<Question> questions = ask({{"description", "Say:\n"}});
  ASSERT_EQ(questions.size(), 3U);
  ASSERT_EQ(questions[0].requests.size(), 2U);
  EXPECT_EQ(questions[0].requests[1].context, "Say:\nQ0?");
  EXPECT_EQ(questions[0].requests[1].continuation, " y y");
  EXPECT_THAT(questions[1].choices, ElementsAre("z", "it's"));
  EXPECT_THAT(questions[1].right, ElementsAre(1));
}

TEST_F(PromptsTest, ExamplesComeBeforeTheQuestion) {
  const std::vector<Question> questions =
      ask({{"fewshot_split", "test"}, {"fewshot_config", {{"sampler", "first_n"}}}}, 2);
  // The document that is asked about is left out.
  EXPECT_EQ(questions[0].requests[0].context, "Q1? it's\n\nQ2? v\n\nQ0?");
  EXPECT_EQ(questions[2].requests[0].context, "Q0? x\n\nQ1? it's\n\nQ2?");
}

TEST_F(PromptsTest, ChoicesMayBeWrittenByATemplateOrInTheTask) {
  EXPECT_THAT(ask({{"doc_to_choice", "{{w}}"}})[1].choices, ElementsAre("z", "it's"));
  EXPECT_THAT(ask({{"doc_to_choice", {{"0", "no"}, {"1", "yes"}}}})[0].choices,
              ElementsAre("no", "yes"));
}

TEST_F(PromptsTest, ATextMayBeTheRightAnswer) {
  EXPECT_THAT(ask({{"doc_to_target", "{{w[1]}}"}})[0].right, ElementsAre(1));
  EXPECT_THAT(ask({{"doc_to_target", "neither"}})[0].right, ElementsAre(kNoChoice));
  EXPECT_THAT(ask({{"doc_to_target", "{{7}}"}})[0].right, ElementsAre(kNoChoice));
  EXPECT_THAT(ask({{"doc_to_target", "[0, {{t}}]"}})[2].right, ElementsAre(0, 1));
}

TEST_F(PromptsTest, ChoicesMayBeTheContexts) {
  const std::vector<Question> questions =
      ask({{"doc_to_text", "{{t}}"}, {"doc_to_target", "{{q}}"}}, 0);
  EXPECT_EQ(questions[1].requests[1].context, "it's");
  EXPECT_EQ(questions[1].requests[1].continuation, " Q1");
  EXPECT_THAT(questions[1].right, ElementsAre(1));
}

TEST_F(PromptsTest, AnAnswersBeginMayBeGiven) {
  const std::vector<Question> questions = ask({{"gen_prefix", "So:"},
                                               {"fewshot_split", "test"},
                                               {"target_delimiter", "~"},
                                               {"fewshot_config", {{"sampler", "first_n"}}}},
                                              1);
  EXPECT_EQ(questions[0].requests[0].context, "Q1?~So: it's\n\nQ0?~So:");
  EXPECT_EQ(questions[0].requests[0].continuation, "~x");
}

TEST_F(PromptsTest, LikelihoodsWithoutAContext) {
  const Json mutual{{"metric_list", {{{"metric", "acc_mutual_info"}}}}};
  const std::vector<Question> questions = ask(mutual);
  ASSERT_EQ(questions[0].requests.size(), 4U);
  EXPECT_EQ(questions[0].requests[3].context, "");
  EXPECT_EQ(questions[0].requests[3].continuation, " y y");
}

TEST_F(PromptsTest, WhatCannotBeAskedNamesTaskAndDocument) {
  const std::pair<Json, const char*> cases[] = {
      {{{"doc_to_text", "{{nothing}}"}}, "nothing"},
      {{{"doc_to_text", "{{q"}}, "task 'reefs', doc_to_text"},
      {{{"doc_to_text", "w"}}, "task 'reefs', document 0: doc_to_text gives no text"},
      {{{"doc_to_choice", "q"}}, "task 'reefs', document 0, doc_to_choice: not a Python"},
      {{{"doc_to_choice", "t"}}, "something that is no text"},
      {{{"doc_to_choice", Json::array()}}, "no choices"},
      {{{"doc_to_choice", {1, 2}}}, "something that is no text"},
      {{{"doc_to_target", "{{ '[0]' if t else '0' }}"}}, "a list for some documents"},
      {{{"doc_to_target", "['x']"}}, "must hold places"},
      {{{"doc_to_target", "{{ '007' }}"}}, "not a Python"},
  };
  for (const auto& [more, expected] : cases) {
    EXPECT_THAT(refusal(more), HasSubstr(expected)) << more;
  }
  EXPECT_THAT(refusal(Json::object(), 4), HasSubstr("4 examples are asked for, and there are 3"));
  EXPECT_THAT(
      refusal({{"doc_to_target", "neither"}, {"doc_to_choice", {"a"}}, {"fewshot_split", "test"}},
              3),
      HasSubstr("3 examples are asked for"));
}

}  // namespace
}  // namespace atl::tasks
