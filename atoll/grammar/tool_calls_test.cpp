#include "atoll/grammar/tool_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/grammar/machine.h"

namespace atl::grammar {
namespace {

const std::vector<Tool> kTools{
    {"weather", R"({"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}},
                    "required": ["city"], "additionalProperties": false,
                    "$defs": {"city": {"type": "string", "maxLength": 20}}})"},
    {"now", ""}};

bool takes(const ToolOptions& options, std::string_view text) {
  const auto grammar = tool_grammar(kTools, options);
  Machine machine(*grammar);
  return machine.advance(machine.begin(), text).may_end;
}

TEST(ToolCallsTest, Hermes) {
  const std::string one =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
  const std::string other = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  EXPECT_TRUE(takes({}, one));
  EXPECT_TRUE(takes({}, "I shall look < <tool" + one + "\n" + other));
  EXPECT_TRUE(takes({}, "No call at all"));
  EXPECT_FALSE(takes({}, one + " and so on"));
  EXPECT_FALSE(takes({}, "<tool_call>\n{\"name\": \"other\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(takes({}, "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(takes({.choice = ToolChoice::kRequired}, "Well: " + one));
  EXPECT_TRUE(takes({.choice = ToolChoice::kRequired}, one));
  EXPECT_FALSE(takes({.is_parallel = false}, one + "\n" + other));

  const ToolAnswer answer =
      read_tool_answer("Let me see.\n" + one + "\n" + other, ToolForm::kHermes);
  EXPECT_EQ(answer.text, "Let me see.");
  EXPECT_THAT(answer.calls, testing::ElementsAre(ToolCall{"weather", R"({"city":"Oslo"})"},
                                                 ToolCall{"now", "{}"}));
}

TEST(ToolCallsTest, Llama3) {
  const std::string call = R"({"name": "weather", "parameters": {"city": "Oslo {"}})";
  const ToolOptions options{.form = ToolForm::kLlama3};
  EXPECT_TRUE(takes(options, call));
  EXPECT_TRUE(takes(options, call + "; " + call));
  EXPECT_TRUE(takes(options, "Some words."));
  EXPECT_TRUE(takes(options, ""));
  EXPECT_FALSE(takes(options, "  {\"a\": 1}"));
  EXPECT_FALSE(takes({.form = ToolForm::kLlama3, .choice = ToolChoice::kRequired}, "Some words."));
  EXPECT_THAT(read_tool_answer(call + "; " + call, options.form).calls,
              testing::ElementsAre(ToolCall{"weather", R"({"city":"Oslo {"})"},
                                   ToolCall{"weather", R"({"city":"Oslo {"})"}));
}

TEST(ToolCallsTest, Mistral) {
  const std::string calls = R"([TOOL_CALLS][{"name": "now", "arguments": {"a": [1, "]"]}}, )"
                            R"({"name": "now", "arguments": {}}])";
  const ToolOptions options{.form = ToolForm::kMistral};
  EXPECT_TRUE(takes(options, calls));
  EXPECT_TRUE(takes(options, "Well. " + calls));
  EXPECT_FALSE(takes(options, "[TOOL_CALLS][]"));
  EXPECT_THAT(read_tool_answer(calls, options.form).calls,
              testing::ElementsAre(ToolCall{"now", R"({"a":[1,"]"]})"}, ToolCall{"now", "{}"}));
}

TEST(ToolCallsTest, WhatIsCutOffIsText) {
  for (const std::string_view text :
       {"<tool_call>\n{\"name\": \"now\", \"arg", "<tool_call>", "<tool_call>\n[]", "plain",
        "<tool_call>\n{\"name\": 1, \"arguments\": {}}\n</tool_call>"}) {
    EXPECT_EQ(read_tool_answer(text, ToolForm::kHermes), (ToolAnswer{std::string(text), {}}));
  }
  EXPECT_EQ(text_before_calls("Words <tool_", ToolForm::kHermes), 6U);
  EXPECT_EQ(text_before_calls("Words <tool_call>\n{", ToolForm::kHermes), 6U);
  EXPECT_EQ(text_before_calls("a < b", ToolForm::kHermes), 5U);
  EXPECT_EQ(text_before_calls("{\"name", ToolForm::kLlama3), 0U);
}

TEST(ToolCallsTest, RefusalNamesTheTool) {
  try {
    tool_grammar({{"bad", R"({"type": "shoe"})"}}, {});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'bad'"));
  }
  EXPECT_THROW(tool_grammar({}, {}), InputError);
  EXPECT_THROW(tool_grammar({{"list", R"({"type": "array"})"}}, {.choice = ToolChoice::kRequired}),
               InputError);
}

}  // namespace
}  // namespace atl::grammar
