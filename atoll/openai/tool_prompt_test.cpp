#include "atoll/openai/tool_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::openai {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(ToolPromptTest, TheFormIsToldFromTheTemplate) {
  using grammar::ToolForm;
  EXPECT_EQ(tool_form("{{ messages }}"), ToolForm::kHermes);  // In words.
  EXPECT_EQ(tool_form("{% if tools %}<tool_call>"), ToolForm::kHermes);
  EXPECT_EQ(tool_form("{% if tools %}[TOOL_CALLS]["), ToolForm::kMistral);
  EXPECT_EQ(tool_form("<|start_header_id|>{% if tools %}{\"name\": n, \"parameters\": p}"),
            ToolForm::kLlama3);
  EXPECT_EQ(tool_form("<|start_header_id|>{% if tools %}<TOOLCALL>"), std::nullopt);
  EXPECT_EQ(tool_form("{% if tools %}[TOOL_CALLS]name[ARGS]"), std::nullopt);
  EXPECT_EQ(tool_form("{% if tools %}<tool_call><function=x>"), std::nullopt);
  EXPECT_EQ(tool_form("{% if tools %}<|channel|>"), std::nullopt);
}

tokenizer::Chat chat_of(const char* messages) {
  return {.messages = Json::parse(messages), .tools = Json::array({{{"name", "now"}}})};
}

TEST(ToolPromptTest, ToolsAreSaidWithWhatTheSystemSays) {
  const auto plain = with_tools_in_words(chat_of(R"([{"role": "user", "content": "x"}])"));
  ASSERT_EQ(plain.messages.size(), 2U);
  EXPECT_TRUE(plain.tools.is_null());
  EXPECT_THAT(plain.messages[0]["content"].get<std::string>(), StartsWith("# Tools"));
  EXPECT_THAT(plain.messages[0]["content"].get<std::string>(),
              HasSubstr("<tools>\n{\"name\":\"now\"}\n</tools>"));
  const auto more = with_tools_in_words(
      chat_of(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}])"));
  ASSERT_EQ(more.messages.size(), 2U);
  EXPECT_THAT(more.messages[0]["content"].get<std::string>(), StartsWith("Be brief.\n\n# Tools"));
}

TEST(ToolPromptTest, CallsAndResultsBecomeTexts) {
  auto chat = chat_of(R"([{"role": "assistant", "content": "Well.", "tool_calls": [
      {"function": {"name": "now", "arguments": {"a": 1}}}]},
      {"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}])");
  chat.tools = nullptr;
  const Json messages = with_tools_in_words(chat).messages;
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0]["content"],
            "Well.\n<tool_call>\n{\"name\":\"now\",\"arguments\":{\"a\":1}}\n</tool_call>");
  EXPECT_FALSE(messages[0].contains("tool_calls"));
  EXPECT_EQ(messages[1]["role"], "user");
  EXPECT_EQ(messages[1]["content"],
            "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>");
}

}  // namespace
}  // namespace atl::openai
