#include "atoll/tasks/task_selection.h"

#include <gmock/gmock.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kBase = R"(
dataset_path: json
dataset_kwargs: {data_files: {test: d.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: q
doc_to_choice: [a, b]
doc_to_target: t
)";

class TaskSelectionTest : public ::testing::Test {
 protected:
  TaskSelectionTest() {
    folder_.write("base", kBase);
    for (const char* name : {"one", "two", "three"}) {
      folder_.write(std::string("tasks/") + name + ".yaml",
                    std::string("include: ../base\ntag: [all]\ntask: ") + name + "\n");
    }
  }

  TaskSelection select(const std::vector<std::string>& wanted) const {
    return select_tasks(wanted, {folder_ / "tasks"});
  }
  std::string refusal(const std::vector<std::string>& wanted) const {
    return message_of([&] { select(wanted); });
  }
  static std::vector<std::string> names(const TaskSelection& selection) {
    std::vector<std::string> names;
    for (const Task& task : selection.tasks) names.push_back(task.name);
    return names;
  }

  TestFolder folder_;
};

TEST_F(TaskSelectionTest, ByNameByTagAndByFile) {
  EXPECT_THAT(names(select({"two", "one"})), ElementsAre("two", "one"));
  EXPECT_THAT(names(select({"all"})), ElementsAre("one", "three", "two"));
  const TaskSelection one = select_tasks({(folder_ / "tasks/one.yaml").string()}, {});
  EXPECT_THAT(names(one), ElementsAre("one"));
  EXPECT_EQ(one.tasks[0].data_files.at("test")[0], folder_ / "tasks/d.jsonl");
}

TEST_F(TaskSelectionTest, GroupsHoldTasksGroupsAndChanges) {
  const std::string tasks = R"(
group: sea
group_alias: The sea
num_fewshot: 4
task:
  - one
  - {task: two, num_fewshot: 2, task_alias: second}
  - group: deep
    task: [three]
    aggregate_metric_list: {metric: acc, weight_by_size: false}
)";
  const std::string rest = R"(aggregate_metric_list:
  - metric: acc
metadata: {version: 2}
)";
  folder_.write("tasks/sea.yaml", tasks + "  - {task: new, include_nothing: null}\n" + rest);
  EXPECT_THAT(refusal({"sea"}), HasSubstr("task 'sea::new'"));  // It says nothing of its own.
  folder_.write("tasks/sea.yaml", tasks + rest);
  const TaskSelection found = select({"sea"});
  EXPECT_THAT(names(found), ElementsAre("one", "two", "three"));
  EXPECT_EQ(found.tasks[0].num_fewshot, 4);
  EXPECT_EQ(found.tasks[1].num_fewshot, 2);
  EXPECT_EQ(found.tasks[1].alias, "second");
  ASSERT_EQ(found.groups.size(), 2U);
  EXPECT_THAT(found.groups[0].members, ElementsAre("one", "two", "sea::deep"));
  EXPECT_EQ(found.groups[0].alias, "The sea");
  EXPECT_EQ(found.groups[0].version, "2");
  EXPECT_TRUE(found.groups[0].metrics.at(0).weight_by_size);
  EXPECT_EQ(found.groups[1].name, "sea::deep");
  EXPECT_FALSE(found.groups[1].metrics.at(0).weight_by_size);
}

TEST_F(TaskSelectionTest, WhatIsNotThereOrThereTwice) {
  EXPECT_THAT(refusal({"four"}), HasSubstr("no task, group or tag 'four' among 3"));
  EXPECT_THAT(refusal({"one", "one"}), HasSubstr("'one' is asked for twice"));
  EXPECT_THAT(refusal({"one", "all"}), HasSubstr("'one' is asked for twice"));
  EXPECT_THAT(refusal({"nowhere/x.yaml"}), HasSubstr("nowhere/x.yaml"));
  EXPECT_THAT(message_of([] { select_tasks({"one"}, {"/nowhere"}); }), HasSubstr("not a folder"));
}

TEST_F(TaskSelectionTest, AFileThatCannotBeReadSaysWhyWhenItIsAskedFor) {
  folder_.write("tasks/broken.yaml", "task: broken\nprocess_docs: !!binary aa\n");
  folder_.write("tasks/worse.yaml", "task: {broken\n");
  EXPECT_THAT(names(select({"one"})), ElementsAre("one"));
  EXPECT_THAT(refusal({"broken"}), HasSubstr("is not supported"));
  EXPECT_THAT(refusal({"other"}), HasSubstr("1 files could not be read"));
}

TEST_F(TaskSelectionTest, GroupsThatCannotBe) {
  const std::pair<const char*, const char*> cases[] = {
      {"task: [g]", "in itself"},
      {"task: one", "\"task\" is not a list"},
      {"task: []", "\"task\" is not a list"},
      {"task: [{name: one}]", "without \"task\" or \"group\""},
      {"task: [one]\naggregate_metric_list: [{metric: acc, aggregation: max}]",
       "there is only mean"},
      {"task: [one]\naggregate_metric_list: [{metric: acc, filter_list: [strict]}]", "no filters"},
      {"task: [one]\naggregate_metric_list: [{weight_by_size: true}]", "without \"metric\""},
      {"task: [one]\naggregate_metric_list: [{metric: acc, colour: 1}]", "\"colour\""},
      {"task: [one]\ncolour: 1", "unknown setting \"colour\""},
  };
  for (const auto& [text, expected] : cases) {
    folder_.write("tasks/g.yaml", std::string("group: g\n") + text + "\n");
    EXPECT_THAT(refusal({"g"}), HasSubstr(expected)) << text;
  }
}

}  // namespace
}  // namespace atl::tasks
