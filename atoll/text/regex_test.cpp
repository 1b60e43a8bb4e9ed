#include "atoll/text/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "atoll/base/error.h"

namespace atl::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> matches(const char* pattern, std::string_view text) {
  std::vector<std::string> found;
  Regex(pattern).each_match(
      text, [&](size_t begin, size_t end) { found.emplace_back(text.substr(begin, end - begin)); });
  return found;
}

std::string refusal(const std::string& pattern, std::string_view text) {
  try {
    Regex(pattern).each_match(text, [](size_t, size_t) {});
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(RegexTest, MatchesFromLeftToRight) {
  EXPECT_THAT(matches(R"(\p{N}{1,3}|\p{L}+(?!\S))", "ab 12345 cde!"),
              ElementsAre("ab", "123", "45"));
  EXPECT_THAT(matches("é+", "aéébé"), ElementsAre("éé", "é"));
  EXPECT_THAT(matches("x", ""), IsEmpty());
}

TEST(RegexTest, AnEmptyMatchStandsNotWhereTheLastEnded) {
  EXPECT_THAT(matches("b*", "abbé"), ElementsAre("", "bb", ""));
}

TEST(RegexTest, ClassesAreThoseOfUnicode16) {
  const std::string letter = "\U00010D50";  // Garay, of 2024.
  const std::string digit = "\U00010D41";
  const std::string vowel = "\U0001171E";  // A mark that was said to take no space, until 2023.
  EXPECT_THAT(matches(R"(\p{L}|[\p{Lu}]|\p{Uppercase_Letter})", letter), ElementsAre(letter));
  EXPECT_THAT(matches(R"(\P{L}|\p{^L}|[^\p{L}]|\W)", letter), IsEmpty());
  EXPECT_THAT(matches(R"(\d)", digit), ElementsAre(digit));
  EXPECT_THAT(matches(R"([^\D])", digit), ElementsAre(digit));
  EXPECT_THAT(matches(R"(\w+)", letter + digit + "a1"), ElementsAre(letter + digit + "a1"));
  EXPECT_THAT(matches(R"(\p{Han}+)", "字\U00031350"), ElementsAre("字\U00031350"));
  EXPECT_THAT(matches(R"(\p{Mn}|[^\P{Mn}])", vowel), IsEmpty());
  EXPECT_THAT(matches(R"(\P{Mn})", vowel), ElementsAre(vowel));
  EXPECT_THAT(matches(R"(\p{Mc})", vowel), ElementsAre(vowel));
  EXPECT_THAT(matches(R"(\p{Cn}|\p{C}|[^\P{Cn}])", letter), IsEmpty());
  EXPECT_THAT(matches(R"(\P{Cn})", letter), ElementsAre(letter));
  EXPECT_THAT(matches(R"([[:punct:]]+)", "a$.\u2764"), ElementsAre("$.\u2764"));
}

TEST(RegexTest, AClassAloneHeedsCaseAndBracketsMayNot) {
  EXPECT_THAT(matches(R"((?i:\p{Ll})|(?i:[\p{Zs}a]))", "bBA"), ElementsAre("b", "A"));
  EXPECT_EQ(with_unicode_16(R"(\p{Zs}[]\s])"), R"(\p{Zs}[]\s])");
  EXPECT_THAT(with_unicode_16(R"((?i:\p{L})\p{L})"), testing::StartsWith(R"((?i:(?-i:[\p{L})"));
  EXPECT_THAT(with_unicode_16(R"((?i:a)\p{L})"), testing::StartsWith(R"((?i:a)[\p{L})"));
}

TEST(RegexTest, NegatedNamesAreThoseOfUnicode16Too) {
  EXPECT_THAT(matches(R"([[:^punct:]]+)", "a+b\u2764"), ElementsAre("a", "b"));
  EXPECT_THAT(matches(R"([[:^digit:]]|[^[:digit:]])", "\U00010D41"), IsEmpty());
  EXPECT_THAT(matches(R"(\p{Hani}\p{Assigned})", "\U00031350\U00010D50").size(), 1U);
}

TEST(RegexTest, SaysWhatIsWrong) {
  EXPECT_THAT(refusal(R"((?W)\w)", ""), HasSubstr("the options (?W) of a pattern"));
  EXPECT_THAT(refusal(R"((?x: a # [ ))", ""), HasSubstr("the options (?x)"));
  EXPECT_THAT(refusal(R"((?<=\Ka)b|a)", "ab"), HasSubstr("stands before the last match"));
  std::string classes;
  while (classes.size() < 60'000) classes += "\\w";
  EXPECT_THAT(refusal(classes, ""), HasSubstr("too many classes"));
  EXPECT_THAT(refusal(classes + classes, ""), HasSubstr("longer than 64 KiB"));
  EXPECT_THAT(refusal("a(b", ""),
              HasSubstr("a(b is no regular expression of Oniguruma: end pattern"));
  EXPECT_THAT(refusal("\\p{Nothing}", ""), HasSubstr("invalid character property name {Nothing}"));
  EXPECT_THAT(refusal("\xff", ""), HasSubstr("not UTF-8"));
}

TEST(RegexTest, ThatWhichBacktracksForEverEnds) {
  std::string text;
  while (text.size() < 30'000) text += std::string(300, 'a') + "c";
  EXPECT_THAT(refusal("a*a*a*b|a", text), HasSubstr("it takes too long"));
  EXPECT_EQ(matches(R"(\s+(?!\S)|\S)", std::string(200'000, ' ') + "x").size(), 2U);
  EXPECT_THAT(refusal(R"((a|aa)+$)", std::string(60, 'a') + "b"),
              HasSubstr("in a text of 61 bytes: it takes too long"));
}

}  // namespace
}  // namespace atl::text
