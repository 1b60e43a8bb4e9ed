#include "atoll/tokenizer/added_tokens.h"

#include <gmock/gmock.h>

namespace atl::tokenizer {
namespace {

using ::testing::ElementsAre;

/// What the text falls into: parts as they are, tokens as <id>.
std::vector<std::string> parts(const AddedTokenMatcher& matcher, std::string_view text,
                               SpecialText special = SpecialText::kToken) {
  std::vector<std::string> found;
  matcher.split(
      text, special,
      [&](std::string_view part, size_t begin) {
        EXPECT_EQ(text.substr(begin, part.size()), part);
        found.emplace_back(part);
      },
      [&](TokenId id) { found.push_back("<" + std::to_string(id) + ">"); });
  return found;
}

TEST(AddedTokenMatcherTest, TakesTheLeftmostThenTheLongest) {
  const AddedTokenMatcher matcher(
      {{.id = 1, .content = "ab"}, {.id = 2, .content = "abcd"}, {.id = 3, .content = "bc"}},
      SpaceMeaning::kSpace);
  EXPECT_THAT(parts(matcher, "xabcdabcbcx"), ElementsAre("x", "<2>", "<1>", "c", "<3>", "x"));
  EXPECT_THAT(parts(matcher, ""), ElementsAre());
  EXPECT_THAT(parts(matcher, "ab"), ElementsAre("<1>"));
}

TEST(AddedTokenMatcherTest, FindsOneByteAtTheEndAndLongTokens) {
  const AddedTokenMatcher matcher(
      {{.id = 1, .content = "#"}, {.id = 2, .content = "a token of more than eight bytes"}},
      SpaceMeaning::kSpace);
  EXPECT_THAT(parts(matcher, "#x#"), ElementsAre("<1>", "x", "<1>"));
  EXPECT_THAT(parts(matcher, "a token of more than eight bytes"), ElementsAre("<2>"));
  EXPECT_THAT(parts(matcher, "a token of more than eight byte"),
              ElementsAre("a token of more than eight byte"));
}

TEST(AddedTokenMatcherTest, NothingIsLookedForInsideATokenThatDoesNotCount) {
  const AddedTokenMatcher matcher(
      {{.id = 1, .content = "<|end|>", .special = true}, {.id = 2, .content = "end"}},
      SpaceMeaning::kSpace);
  EXPECT_THAT(parts(matcher, "<|end|>end", SpecialText::kPlain), ElementsAre("<|end|>", "<2>"));
}

TEST(AddedTokenMatcherTest, SingleWordsStandAlone) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "ab", .single_word = true}},
                                  SpaceMeaning::kSpace);
  EXPECT_THAT(parts(matcher, "ab cab ab\u00e9 \u0301ab ab"),
              ElementsAre("<1>", " cab ab\u00e9 \u0301ab ", "<1>"));
}

TEST(AddedTokenMatcherTest, StripsTakeWhiteSpace) {
  const AddedTokenMatcher matcher(
      {{.id = 1, .content = "<l>", .lstrip = true}, {.id = 2, .content = "<r>", .rstrip = true}},
      SpaceMeaning::kSpace);
  EXPECT_THAT(parts(matcher, "a \u3000\n<l> b"), ElementsAre("a", "<1>", " b"));
  EXPECT_THAT(parts(matcher, "a <r> \t\u2003b"), ElementsAre("a ", "<2>", "b"));
  EXPECT_THAT(parts(matcher, " <l>"), ElementsAre("<1>"));
  EXPECT_THAT(parts(matcher, "<r> <l>"), ElementsAre("<2>", "<1>"));  // The space is taken once.
}

TEST(AddedTokenMatcherTest, MarksAreNoWhiteSpace) {
  const AddedTokenMatcher matcher({{.id = 1, .content = "<l>", .lstrip = true}},
                                  SpaceMeaning::kMark);
  EXPECT_THAT(parts(matcher, "a \n<l>"), ElementsAre("a ", "<1>"));
}

}  // namespace
}  // namespace atl::tokenizer
