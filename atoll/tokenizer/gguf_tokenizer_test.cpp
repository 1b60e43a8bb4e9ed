// Tokenizers in GGUF files; tests/oracle/gguf_oracle.py has the files that PyPI `gguf` writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "atoll/testing/sample_gguf.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/chat_template.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {
namespace {

using codec::SampleGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Byte-level, of a few letters: 4 begins texts.
SampleGguf byte_level(const std::string& pre, const std::vector<std::string>& merges) {
  SampleGguf file;
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", pre);
  file.texts("tokenizer.ggml.tokens", {"a", "1", "\u0120", "\u0120a", "<begin>", "aa"});
  file.wholes("tokenizer.ggml.token_type", {1, 1, 1, 1, 3, 1});
  file.texts("tokenizer.ggml.merges", merges);
  file.whole("tokenizer.ggml.bos_token_id", 4);
  return file;
}

class GgufTokenizerTest : public ::testing::Test {
 protected:
  Tokenizer load(const SampleGguf& file) {
    return Tokenizer::load(folder_.write("x.gguf", file.file()));
  }
  std::string error_of(const SampleGguf& file) {
    return message_of([&] { load(file); });
  }
  TestFolder folder_;
};

TEST_F(GgufTokenizerTest, WordsAreCutAsTheNameSays) {
  const Tokenizer gpt2 = load(byte_level("gpt-2", {"\u0120 a"}));
  EXPECT_THAT(gpt2.encode("a a11", SpecialText::kToken), ElementsAre(0, 3, 1, 1));
  EXPECT_THAT(gpt2.encode("<begin>a", SpecialText::kToken), ElementsAre(4, 0));
  EXPECT_THAT(gpt2.with_special_tokens({0}), ElementsAre(0)) << "where the file does not say so";
  EXPECT_THAT(gpt2.encode("aa", SpecialText::kToken), ElementsAre(0, 0));
  const Tokenizer llama = load(byte_level("llama-bpe", {"\u0120 a"}));
  EXPECT_THAT(llama.with_special_tokens({0}), ElementsAre(4, 0)) << "as llama.cpp does";
  EXPECT_THAT(llama.encode("aa", SpecialText::kToken), ElementsAre(5)) << "a word is taken whole";
}

TEST_F(GgufTokenizerTest, SentencePiecesHaveScores) {
  SampleGguf file;
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab", "\u2581"});
  file.wholes("tokenizer.ggml.token_type", {2, 1, 1, 1, 1});
  EXPECT_THAT(error_of(file), HasSubstr("has no scores"));
  file.reals("tokenizer.ggml.scores", {0, -3, -4, -1, -2});
  EXPECT_THAT(load(file).encode("ab?", SpecialText::kToken), ElementsAre(4, 3, 0));
}

TEST_F(GgufTokenizerTest, ItsTemplateIsThere) {
  SampleGguf file = byte_level("gpt-2", {});
  file.text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
  const auto path = folder_.write("chat.gguf", file.file());
  const auto messages = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "a"}])");
  EXPECT_EQ(ChatTemplate::find(path, "").render(Chat::from_json(messages, "test")), "<begin>a");
}

TEST_F(GgufTokenizerTest, NamesWhatIsNotKnown) {
  EXPECT_THAT(error_of(byte_level("of-mars", {})), HasSubstr("tokenizer.ggml.pre is \"of-mars\""));
  EXPECT_THAT(error_of(byte_level("gpt-2", {"\xff a"})), HasSubstr("a merge is not UTF-8"));
  EXPECT_THAT(error_of(SampleGguf()), HasSubstr("there is no tokenizer in it"));
  SampleGguf other;
  other.text("tokenizer.ggml.model", "rwkv");
  other.texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_THAT(error_of(other), HasSubstr("of kind \"rwkv\""));
}

}  // namespace
}  // namespace atl::tokenizer
