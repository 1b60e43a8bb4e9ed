#include "atoll/tokenizer/cl100k_words.h"

#include <gmock/gmock.h>

#include "atoll/tokenizer/joined_words.h"

namespace atl::tokenizer {
namespace {

using ::testing::ElementsAre;

template <typename Words>
std::vector<std::string> cut(const Words& words, std::string_view text) {
  std::vector<std::string> found;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const after = words.next(at, end);
    found.emplace_back(at, after);
    at = after;
  }
  return found;
}

const Cl100kWords kThree(3);

TEST(Cl100kWordsTest, CutsAsTheRegularExpressionDoes) {
  EXPECT_THAT(cut(kThree, "def f(self):\n\treturn"),
              ElementsAre("def", " f", "(self", "):\n", "\treturn"));
  EXPECT_THAT(cut(kThree, "a\n\n  \n  b"), ElementsAre("a", "\n\n  \n", " ", " b"));
  EXPECT_THAT(cut(kThree, "a  \r\n"), ElementsAre("a", "  \r\n"));
  EXPECT_THAT(cut(kThree, "a   "), ElementsAre("a", "   "));
  EXPECT_THAT(cut(kThree, "x == 'y'"), ElementsAre("x", " ==", " '", "y", "'"));
  EXPECT_THAT(cut(kThree, "!!abc \u4e16!\r\n\n x"),
              ElementsAre("!!", "abc", " \u4e16", "!\r\n\n", " x"));
  EXPECT_THAT(cut(kThree, "e\u0301e\u00a0e\ne"), ElementsAre("e", "\u0301e", "\u00a0e", "\n", "e"));
}

TEST(Cl100kWordsTest, CountsDigits) {
  EXPECT_THAT(cut(kThree, "a 12345"), ElementsAre("a", " ", "123", "45"));
  EXPECT_THAT(cut(kThree, "\u0661\u0662\u00bd4"), ElementsAre("\u0661\u0662\u00bd", "4"));
  EXPECT_THAT(cut(Cl100kWords(1), "a 12"), ElementsAre("a", " ", "1", "2"));
}

TEST(Cl100kWordsTest, ContractionsOfAnyCase) {
  EXPECT_THAT(cut(kThree, "I'LL we'Re x'\u017fy 'hello"),
              ElementsAre("I", "'LL", " we", "'Re", " x", "'\u017f", "y", " '", "hello"));
}

TEST(JoinedWordsTest, CutsOnlyWhereNothingJoins) {
  JoinTable table;
  EXPECT_THAT(cut(JoinedWords(table), "a b"), ElementsAre("a b"));
  table.cut('a', ' ');
  EXPECT_THAT(cut(JoinedWords(table), "a ba  a"), ElementsAre("a", " ba", "  a"));
  EXPECT_EQ(JoinedWords(table).safe_cut("bb ba  a", 2), 5U);
  EXPECT_EQ(JoinedWords(table).safe_cut("bbbb", 2), 4U);
}

}  // namespace
}  // namespace atl::tokenizer
