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
}

TEST(ToolCallsTest, Mistral) {
  const std::string calls = R"([TOOL_CALLS][{"name": "now", "arguments": {"a": [1, "]"]}}, )"
                            R"({"name": "now", "arguments": {}}])";
  const ToolOptions options{.form = ToolForm::kMistral};
  EXPECT_TRUE(takes(options, calls));
  EXPECT_TRUE(takes(options, "Well. " + calls));
  EXPECT_FALSE(takes(options, "[TOOL_CALLS][]"));
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
