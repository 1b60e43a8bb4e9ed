#include "atoll/grammar/tool_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::grammar {
namespace {

using testing::ElementsAre;

constexpr const char* kHermesText =
    "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Os}lo\\\"\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

TEST(ToolReaderTest, ReadsEachForm) {
  const ToolAnswer hermes = read_tool_answer(kHermesText, ToolForm::kHermes);
  EXPECT_EQ(hermes.text, "Let me see.");
  EXPECT_THAT(hermes.calls,
              ElementsAre(ToolCall{"weather", R"({"city": "Os}lo\""})"}, ToolCall{"now", "{}"}));
  const std::string call = R"({"name": "weather", "parameters": {"city": "Oslo {"}})";
  EXPECT_THAT(read_tool_answer(call + "; " + call, ToolForm::kLlama3).calls,
              ElementsAre(ToolCall{"weather", R"({"city": "Oslo {"})"},
                          ToolCall{"weather", R"({"city": "Oslo {"})"}));
  const ToolAnswer mistral =
      read_tool_answer(R"([TOOL_CALLS][{"name": "now", "arguments": {"a": [1, "]"]}}, )"
                       R"({"name": "now", "arguments": {}}])",
                       ToolForm::kMistral);
  EXPECT_EQ(mistral.text, "");
  EXPECT_THAT(mistral.calls,
              ElementsAre(ToolCall{"now", R"({"a": [1, "]"]})"}, ToolCall{"now", "{}"}));
}

TEST(ToolReaderTest, PiecesOfAnySizeGiveTheSame) {
  const ToolAnswer whole = read_tool_answer(kHermesText, ToolForm::kHermes);
  for (size_t size = 1; size < 20; ++size) {
    ToolReader reader(ToolForm::kHermes);
    ToolAnswer pieced;
    const std::string_view text = kHermesText;
    for (size_t at = 0; at < text.size(); at += size) {
      for (const ToolEvent& event : reader.add(text.substr(at, size))) {
        if (event.kind == ToolEvent::Kind::kText) pieced.text += event.text;
        if (event.kind == ToolEvent::Kind::kCall) pieced.calls.push_back({event.text, ""});
        if (event.kind == ToolEvent::Kind::kArguments) pieced.calls.back().arguments += event.text;
      }
    }
    EXPECT_TRUE(reader.finish().empty());
    EXPECT_EQ(pieced, whole) << size;
  }
}

TEST(ToolReaderTest, WhatMayBecomeAMarkIsHeldBack) {
  ToolReader reader(ToolForm::kHermes);
  const auto text = [](const char* value) { return ToolEvent{ToolEvent::Kind::kText, value}; };
  EXPECT_THAT(reader.add("Words <tool_"), ElementsAre(text("Words")));
  EXPECT_THAT(reader.add("box> and"), ElementsAre(text(" <tool_box> and")));
  EXPECT_THAT(reader.add(" \n<"), ElementsAre());
  EXPECT_THAT(reader.finish(), ElementsAre(text(" \n<")));
  ToolReader llama(ToolForm::kLlama3);
  EXPECT_THAT(llama.add("\n"), ElementsAre());
  EXPECT_THAT(llama.add("Well "), ElementsAre(text("\nWell")));
  EXPECT_THAT(llama.add("{"), ElementsAre(text(" {")));
}

TEST(ToolReaderTest, WhatIsCutOffIsThereAsFarAsItGoes) {
  EXPECT_EQ(read_tool_answer("<tool_call>\n{\"name\": \"now\", \"arg", ToolForm::kHermes),
            ToolAnswer{});
  EXPECT_EQ(
      read_tool_answer("<tool_call>\n{\"name\": \"now\", \"arguments\": {\"a", ToolForm::kHermes),
      (ToolAnswer{"", {{"now", "{\"a"}}}));
  EXPECT_EQ(read_tool_answer("plain", ToolForm::kMistral), (ToolAnswer{"plain", {}}));
}

}  // namespace
}  // namespace atl::grammar
