#include "atoll/tasks/task_heading.h"

#include <gmock/gmock.h>

#include "atoll/tasks/task_file.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(TaskHeadingTest, KeysAtTheLeftEndCount) {
  const auto heading = scan_task_heading(
      "# of the sea\n---\ntag:\n  - sea # both\n\n  - 'deep sea'\ntask: reefs  # its name\n"
      "include: [base.yaml, \"../more\"]\ndoc_to_text: |\n  task: {not this}\n"
      "metric_list:\n- metric: acc\nnested:\n  tag: other\n");
  ASSERT_TRUE(heading);
  EXPECT_THAT(heading->task, Optional(std::string("reefs")));
  EXPECT_FALSE(heading->group);
  EXPECT_THAT(heading->tags, Optional(ElementsAre("sea", "deep sea")));
  EXPECT_THAT(heading->includes, ElementsAre("base.yaml", "../more"));
}

TEST(TaskHeadingTest, AGroupsTasksAreNotItsName) {
  const auto heading = scan_task_heading("group: seas\ntask:\n  - one\n  - task: two\n");
  ASSERT_TRUE(heading);
  EXPECT_THAT(heading->group, Optional(std::string("seas")));
  EXPECT_FALSE(heading->task);
}

TEST(TaskHeadingTest, WhatIsNotPlainIsLeftToYaml) {
  for (const char* text :
       {"{task: x}", "\"task\": x\n", "task: &a x\n", "task: *a\n", "task: yes\n", "task: 12\n",
        "task: \"a\\tb\"\n", "task: one\n  more\n", "task: |\n  one\n", "tag: [a, {b: c}]\n",
        "tag:\n  a: b\n", "tag: !x a\n", "task: .5\n", "just words\n", "task: a: b\n",
        "tag: [a,\n  b]\n", "group: [a]\nx: 1\n", "%YAML 1.1\n"}) {
    const auto heading = scan_task_heading(text);
    EXPECT_TRUE(!heading || std::string_view(text) == "group: [a]\nx: 1\n") << text;
  }
}

class HeadingReaderTest : public ::testing::Test {
 protected:
  TestFolder folder_;
  HeadingReader reader_;
};

TEST_F(HeadingReaderTest, WhatIsIncludedIsInheritedAsAReaderOfYamlDoes) {
  folder_.write("base", "task: base\ntag: sea\noutput_type: x\n");
  folder_.write("more", "include: base\ntag: [deep]\n");
  const auto one = folder_.write("tasks/one.yaml", "include: ../base\ntask: one\n");
  const auto two = folder_.write("tasks/two.yaml", "include: ../more\ngroup: g\n");
  for (const auto& file : {one, two}) {
    const auto heading = reader_.read(file);
    ASSERT_TRUE(heading);
    const Json settings = read_task_file(file);
    EXPECT_EQ(heading->task.value_or(""), settings.value("task", ""));
    EXPECT_EQ(heading->group.value_or(""), settings.value("group", ""));
  }
  EXPECT_THAT(reader_.read(one)->tags, Optional(ElementsAre("sea")));
  EXPECT_THAT(reader_.read(two)->tags, Optional(ElementsAre("deep")));
}

TEST_F(HeadingReaderTest, CirclesAndFilesThatAreNotThereAreLeftToTheReader) {
  const auto a = folder_.write("a.yaml", "include: b.yaml\ntask: a\n");
  folder_.write("b.yaml", "include: a.yaml\n");
  EXPECT_FALSE(reader_.read(a));
  EXPECT_FALSE(reader_.read(folder_.write("c.yaml", "include: nowhere\ntask: c\n")));
  EXPECT_FALSE(reader_.read(folder_ / "nowhere.yaml"));
  EXPECT_FALSE(reader_.read(folder_.write("d.json", "{\"task\": \"d\"}")));
}

}  // namespace
}  // namespace atl::tasks
