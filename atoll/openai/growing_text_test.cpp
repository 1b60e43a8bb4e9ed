#include "atoll/openai/growing_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "atoll/openai/logprobs.h"
#include "atoll/testing/sample_tokenizer.h"

namespace atl::openai {
namespace {

const tokenizer::Tokenizer& sample() {
  static const auto kSample = tokenizer::Tokenizer::from_json(
      data::sample_llama_json({"\u2581", "a", "\u2581a"}, {"\u2581 a"}), "sample");
  return kSample;
}

decoding::TokenScore byte(char c) { return {.id = static_cast<uint8_t>(c) + 3, .logprob = -1}; }

/// All that comes, and the tokens' offsets.
struct Grown {
  std::string text;
  std::vector<int64_t> offsets;
  void add(const Piece& piece) {
    text += piece.text;
    for (const TextToken& token : piece.tokens) offsets.push_back(token.offset);
  }
};

Grown grow(const std::string& bytes, std::vector<std::string> stops = {}) {
  GrowingText growing(sample(), std::move(stops));
  Grown grown;
  for (const char c : bytes) {
    if (growing.is_stopped()) break;
    grown.add(growing.add(byte(c)));
  }
  grown.add(growing.finish());
  return grown;
}

TEST(GrowingTextTest, TheIdThatEndsATextIsToldWithItsRestAndHasNoText) {
  GrowingText growing(sample(), {});
  Grown grown;
  grown.add(growing.add(byte('a')));
  growing.add_end({.id = 2, .logprob = -3});
  const Piece rest = growing.finish();
  ASSERT_EQ(rest.tokens.size(), 1U);
  EXPECT_EQ(rest.tokens[0].score.id, 2);
  EXPECT_EQ(rest.tokens[0].score.logprob, -3);
  EXPECT_EQ(rest.tokens[0].offset, 1);
  EXPECT_EQ(rest.text, "");
}

TEST(GrowingTextTest, TokensLieWhereTheirCharactersBegin) {
  const Grown grown = grow("a\xc3\xa9z");
  EXPECT_EQ(grown.text, "a\xc3\xa9z");
  EXPECT_EQ(grown.offsets, (std::vector<int64_t>{0, 1, 1, 2}));
  EXPECT_EQ(grow("\xff\xffz").offsets, (std::vector<int64_t>{0, 1, 2}));
}

TEST(GrowingTextTest, NothingOfAStopIsThereNorItsTokens) {
  const Grown grown = grow("abcdefgh", {"xyz", "def"});
  EXPECT_EQ(grown.text, "abc");
  EXPECT_EQ(grown.offsets, (std::vector<int64_t>{0, 1, 2}));
  const Grown whole = grow("abde", {"def"});  // It might have come.
  EXPECT_EQ(whole.text, "abde");
  EXPECT_EQ(whole.offsets.size(), 4U);
}

TEST(GrowingTextTest, TokensComeWithTheTextThatTheyAreOf) {
  GrowingText growing(sample(), {"bcd"});
  EXPECT_EQ(growing.add(byte('a')).tokens.size(), 1U);
  const Piece held = growing.add(byte('b'));
  EXPECT_EQ(held.text, "");
  EXPECT_TRUE(held.tokens.empty());
  const Piece freed = growing.add(byte('x'));
  EXPECT_EQ(freed.text, "bx");
  EXPECT_EQ(freed.tokens.size(), 2U);
}

TEST(GrowingTextTest, AnAnswerBeginsWithItsPrompt) {
  for (const std::string text : {"ab", " ab", "b", "", "</s>a"}) {
    const PromptIds prompt = encode(text, sample(), 300, {2}, "prompt");
    GrowingText growing(sample(), {"b"});
    std::vector<decoding::TokenScore> scores;
    for (size_t i = 1; i < prompt.ids.size(); ++i) scores.push_back({.id = prompt.ids[i]});
    const Piece piece = growing.repeat(prompt, scores);
    EXPECT_EQ(piece.text, text);
    ASSERT_EQ(piece.tokens.size(), prompt.ids.size());
    EXPECT_FALSE(piece.tokens[0].is_scored);
    Grown grown;
    grown.add(growing.add(byte('z')));
    EXPECT_EQ(grown.offsets, (std::vector<int64_t>{std::ssize(text)})) << text;
  }
}

TEST(LogprobsTest, TheTokenItselfIsAmongTheLikeliest) {
  const TextToken token{.score = {.id = 3 + 'a', .logprob = -5, .top = {{3 + 'b', -0.25}}}};
  const Json json = completion_logprobs({token}, sample());
  EXPECT_EQ(json["top_logprobs"][0], (Json{{"b", -0.25}, {"a", -5.0}}));
  EXPECT_EQ(chat_logprobs({token}, sample())[0]["top_logprobs"].size(), 1U);
}

}  // namespace
}  // namespace atl::openai
