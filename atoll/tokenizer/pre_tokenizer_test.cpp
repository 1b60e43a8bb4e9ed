#include "atoll/tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace atl::tokenizer {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> cut(const std::vector<CutStep>& steps, std::string_view text,
                             bool is_first = true) {
  PreTokenizer words;
  for (const CutStep& step : steps) words.add(step, true);
  Pieces pieces;
  std::vector<Piece> spare;
  words.cut(text, is_first, pieces, spare);
  std::vector<std::string> out;
  for (const Piece& piece : pieces.all) out.emplace_back(piece.text);
  return out;
}

/// By `b*`, which also matches nothing: what the library gives.
TEST(PreTokenizerTest, EachBehaviorOfASplit) {
  using enum SplitBehavior;
  const auto split = [](SplitBehavior behavior, bool invert) {
    return cut({split_by(match_regex("b*"), behavior, invert)}, "abbcbbd");
  };
  EXPECT_THAT(split(kRemoved, false), ElementsAre("a", "c", "d"));
  EXPECT_THAT(split(kRemoved, true), ElementsAre("bb", "bb"));
  EXPECT_THAT(split(kIsolated, false), ElementsAre("a", "bb", "c", "bb", "d"));
  EXPECT_THAT(split(kMergedWithPrevious, false), ElementsAre("abb", "cbb", "d"));
  EXPECT_THAT(split(kMergedWithPrevious, true), ElementsAre("a", "bbc", "bbd"));
  EXPECT_THAT(split(kMergedWithNext, false), ElementsAre("a", "bbc", "bbd"));
  EXPECT_THAT(split(kMergedWithNext, true), ElementsAre("abb", "cbb", "d"));
  EXPECT_THAT(split(kContiguous, false), ElementsAre("a", "bb", "c", "bb", "d"));
}

TEST(PreTokenizerTest, NeighboursThatMatchAreOneOrApart) {
  const Matcher digits = match_characters([](uint32_t code) { return code >= '0' && code <= '9'; });
  EXPECT_THAT(cut({split_by(digits, SplitBehavior::kContiguous)}, "a12b"),
              ElementsAre("a", "12", "b"));
  EXPECT_THAT(cut({split_by(digits, SplitBehavior::kIsolated)}, "a12b"),
              ElementsAre("a", "1", "2", "b"));
}

TEST(PreTokenizerTest, AnEmptyStringStandsBeforeEachCharacter) {
  EXPECT_THAT(cut({split_by(match_string(""), SplitBehavior::kIsolated)}, "aé"),
              ElementsAre("a", "é"));
}

TEST(PreTokenizerTest, AStepCutsWhatTheOneBeforeLeft) {
  const auto at_spaces = split_by(match_string(" "), SplitBehavior::kRemoved);
  EXPECT_THAT(cut({at_spaces, with_prefix_space()}, "a  bc "), ElementsAre(" a", " bc"));
  EXPECT_THAT(cut({at_spaces}, "  "), IsEmpty());
}

TEST(PreTokenizerTest, MarksStandForSpaces) {
  const auto always = mark_spaces("_", PrefixScheme::kAlways, true);
  EXPECT_THAT(cut({always}, "a  b_c "), ElementsAre("_a", "_", "_b", "_c", "_"));
  EXPECT_THAT(cut({mark_spaces("_", PrefixScheme::kNever, false)}, "a b"), ElementsAre("a_b"));
  const auto first = mark_spaces("_", PrefixScheme::kFirst, true);
  EXPECT_THAT(cut({first}, "a"), ElementsAre("_a"));
  EXPECT_THAT(cut({first}, "a", /*is_first=*/false), ElementsAre("a"));
  const auto at_spaces = split_by(match_string(" "), SplitBehavior::kRemoved);
  EXPECT_THAT(cut({at_spaces, first}, "a b"), ElementsAre("_a", "b"));
  EXPECT_THAT(cut({at_spaces, first}, " a b"), ElementsAre("a", "b")) << "nothing begins the text";
}

}  // namespace
}  // namespace atl::tokenizer
