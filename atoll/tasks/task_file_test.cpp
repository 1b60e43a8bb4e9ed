#include "atoll/tasks/task_file.h"

#include <gmock/gmock.h>

#include <cmath>

#include "atoll/testing/temporary_folder.h"

namespace atl::tasks {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Json yaml(std::string_view text) { return parse_task_yaml(text, "t.yaml"); }
std::string refusal(std::string_view text) {
  return message_of([&] { yaml(text); });
}

TEST(TaskFileTest, PlainWordsAreWhatPyYamlMakesOfThem) {
  // Each: the word, and what yaml.safe_load gives for it.
  const std::pair<const char*, Json> cases[] = {
      {"yes", true},
      {"No", false},
      {"on", true},
      {"OFF", false},
      {"y", "y"},
      {"true", true},
      {"tRue", "tRue"},
      {"null", nullptr},
      {"~", nullptr},
      {"", nullptr},
      {"12", 12},
      {"-3", -3},
      {"+3", 3},
      {"1_000", 1000},
      {"010", 8},
      {"08", "08"},
      {"0x1F", 31},
      {"0b101", 5},
      {"1.5", 1.5},
      {"1.", 1.0},
      {".5", 0.5},
      {"1e5", "1e5"},
      {"1.0e5", "1.0e5"},
      {"1.0e+5", 100000.0},
      {"-1.5e-3", -0.0015},
      {"1_0.5", 10.5},
      {"'yes'", "yes"},
      {"\"12\"", "12"},
      {"a b", "a b"},
      {"!!str 12", "12"},
      {"1.2.3", "1.2.3"},
      {"12a", "12a"},
      {"_1", "_1"},
      {"-", "-"},
      {"\"\\u00e9\"", "é"},
      {"._5", "._5"},
  };
  for (const auto& [word, expected] : cases) {
    if (std::string(word) == "-") continue;  // A list with nothing in it.
    EXPECT_EQ(yaml(std::string("k: ") + word + "\n")["k"], expected) << word;
  }
  EXPECT_TRUE(std::isinf(yaml("k: -.inf")["k"].get<double>()));
  EXPECT_TRUE(std::isnan(yaml("k: .nan")["k"].get<double>()));
}

TEST(TaskFileTest, BlocksListsAndAliases) {
  const Json settings = yaml(
      "text: |-\n  {{question}}\n  Answer:\nlist: &l [A, \"B\"]\nagain: *l\n"
      "folded: >\n  one\n  two\nnested: {a: {b: [1, {c: no}]}}\n");
  EXPECT_EQ(settings["text"], "{{question}}\nAnswer:");
  EXPECT_EQ(settings["again"], Json({"A", "B"}));
  EXPECT_EQ(settings["folded"], "one two\n");
  EXPECT_EQ(settings["nested"]["a"]["b"][1]["c"], false);
}

TEST(TaskFileTest, RefusesWhatItDoesNotHave) {
  EXPECT_THAT(refusal("a: 1\n!function utils.process: 2\n"),
              AllOf(HasSubstr("'t.yaml', line 2"), HasSubstr("the tag !function")));
  EXPECT_THAT(refusal("a: !!python/object:os.system x"), HasSubstr("is not supported"));
  EXPECT_THAT(refusal("a: !!set {x}"), HasSubstr("is not supported"));
  EXPECT_THAT(refusal("a: 1\nb: 2\na: 3"), HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(refusal("x: &x {a: 1}\ny:\n  <<: *x\n"), HasSubstr("<<"));
  EXPECT_THAT(refusal("a: 2024-01-31"), HasSubstr("put it in quotes"));
  EXPECT_THAT(refusal("a: 12:30:45"), HasSubstr("put it in quotes"));
  EXPECT_THAT(refusal("[1, 2]: x"), HasSubstr("a key that is no word"));
  EXPECT_THAT(refusal("a: \"\xff\""), HasSubstr("t.yaml"));
}

TEST(TaskFileTest, RefusesWhatIsNoMapping) {
  for (const char* text :
       {"", "- a", "word", "a: 1\n---\nb: 2\n", "a: [", "a: b: c", "\"", "\t- x"}) {
    EXPECT_THAT(refusal(text), HasSubstr("'t.yaml'")) << text;
  }
}

TEST(TaskFileTest, DepthAndSizeAreBounded) {
  EXPECT_THAT(refusal("a: " + std::string(100, '[') + std::string(100, ']')),
              HasSubstr("too deep"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("t.yaml"));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += "*a" + std::to_string(i - 1) + ", ";
    bomb += "]\n";
  }
  EXPECT_THAT(refusal(bomb), HasSubstr("values"));
  EXPECT_THAT(refusal("a: " + std::string(5 << 20, 'x')), HasSubstr("not a task file"));
}

TEST(TaskFileTest, IncludedFilesGiveWay) {
  const TestFolder folder;
  folder.write("base_yaml", "a: 1\nb: 1\nc: 1\n");
  folder.write("other/more.yaml", "include: ../base_yaml\nb: 2\nc: 2\n");
  const auto file = folder.write("task.yaml", "include: other/more.yaml\nc: 3\n");
  EXPECT_EQ(read_task_file(file), Json({{"a", 1}, {"b", 2}, {"c", 3}}));
  const auto several =
      folder.write("several.json", R"({"include": ["base_yaml", "task.yaml"], "d": 4})");
  EXPECT_EQ(read_task_file(several), Json({{"a", 1}, {"b", 2}, {"c", 3}, {"d", 4}}));
}

TEST(TaskFileTest, IncludesThatCannotBe) {
  const TestFolder folder;
  folder.write("a.yaml", "include: b.yaml\n");
  folder.write("b.yaml", "include: a.yaml\n");
  EXPECT_THAT(message_of([&] { read_task_file(folder / "a.yaml"); }), HasSubstr("includes itself"));
  folder.write("c.yaml", "include: nowhere.yaml\n");
  EXPECT_THAT(message_of([&] { read_task_file(folder / "c.yaml"); }), HasSubstr("nowhere.yaml"));
  folder.write("d.yaml", "include: {a: 1}\n");
  EXPECT_THAT(message_of([&] { read_task_file(folder / "d.yaml"); }), HasSubstr("not the name"));
  folder.write("e.json", "{\"a\": ");
  EXPECT_THAT(message_of([&] { read_task_file(folder / "e.json"); }), HasSubstr("not valid JSON"));
  folder.write("f.json", "[1]");
  EXPECT_THAT(message_of([&] { read_task_file(folder / "f.json"); }), HasSubstr("not an object"));
}

}  // namespace
}  // namespace atl::tasks
