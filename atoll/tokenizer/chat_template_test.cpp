// Where templates and special tokens are found, and what is refused. The texts themselves:
// tests/oracle/chat_oracle.py.
#include "atoll/tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include "atoll/testing/temporary_folder.h"

namespace atl::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

Chat hello() {
  return Chat::from_json(Json::parse(R"([{"role": "user", "content": "Hi"}])"), "here");
}

TEST(ChatTemplateTest, TheFileGoesBeforeTheConfig) {
  const TestFolder folder;
  EXPECT_FALSE(ChatTemplate::load(folder.path()));
  folder.write("tokenizer_config.json",
               R"({"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<s>"}})");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(hello()), "config <s>");
  folder.write("chat_template.jinja", "file {{ bos_token }}{{ eos_token }}");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(hello()), "file <s>");
  folder.write("special_tokens_map.json", R"({"eos_token": "</s>", "bos_token": "other"})");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(hello()), "file <s></s>");
}

TEST(ChatTemplateTest, ChatsWithToolsHaveATemplateOfTheirOwn) {
  const TestFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
  const auto found = ChatTemplate::load(folder.path());
  Chat chat = hello();
  EXPECT_EQ(found->render(chat), "plain");
  chat.tools = Json::array({"a tool"});
  EXPECT_EQ(found->render(chat), "tools");
}

TEST(ChatTemplateTest, ChatsCarryWhatTheTemplateMayAskFor) {
  const TestFolder folder;
  folder.write("chat_template.jinja", "{{ messages|length }}{{ add_generation_prompt }}{{ x }}");
  const Chat chat = Chat::from_json(
      {{"messages", {{{"role", "user"}}}}, {"add_generation_prompt", true}, {"x", 7}}, "here");
  EXPECT_EQ(ChatTemplate::load(folder.path())->render(chat), "1True7");
}

TEST(ChatTemplateTest, BuiltInTemplates) {
  const TestFolder folder;
  folder.write("tokenizer_config.json", R"({"bos_token": "<b>"})");
  Chat chat = hello();
  chat.add_generation_prompt = true;
  EXPECT_EQ(ChatTemplate::load(folder.path(), "chatml").render(chat),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(ChatTemplate::load(folder.path(), "llama3").render(chat),
            "<b><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(ChatTemplate::load(folder.path(), "plain").render(chat), "User: Hi\nAssistant:");
}

TEST(ChatTemplateTest, RefusesDamagedFilesAndChats) {
  const TestFolder folder;
  const auto config = [&](const char* text) {
    folder.write("tokenizer_config.json", text);
    return message_of([&] { ChatTemplate::load(folder.path()); });
  };
  EXPECT_NE(config("{").find("not valid JSON"), std::string::npos);
  EXPECT_NE(config("[]").find("not an object"), std::string::npos);
  EXPECT_NE(config(R"({"chat_template": 7})").find("neither a text nor a list"), std::string::npos);
  EXPECT_NE(config(R"({"chat_template": [{"name": "a"}]})").find("lacks"), std::string::npos);
  EXPECT_NE(config(R"({"chat_template": [{"name": "a", "template": ""}]})").find("\"default\""),
            std::string::npos);
  EXPECT_NE(config(R"({"chat_template": "", "bos_token": 7})").find("\"bos_token\" is not a token"),
            std::string::npos);
  EXPECT_NE(config(R"({"chat_template": "a\n{% nope %}"})").find("line 2: the tag 'nope'"),
            std::string::npos);
  const auto chat = [](const char* text) {
    return message_of([&] { Chat::from_json(Json::parse(text), "here"); });
  };
  EXPECT_EQ(chat("7"), "here: neither a list of messages nor an object with \"messages\"");
  EXPECT_EQ(chat("[]"), "here: there is no message");
  EXPECT_EQ(chat("[7]"), "here: a message is no object with \"role\"");
  EXPECT_EQ(chat(R"({"messages": [{"role": "user"}], "tools": 1})"), "here: tools is no list");
}

}  // namespace
}  // namespace atl::tokenizer
