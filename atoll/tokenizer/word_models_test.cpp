#include "atoll/tokenizer/word_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace atl::tokenizer {
namespace {

using testing::ElementsAre;

std::vector<TokenId> ids_of(const WordModel& model, const std::string& word) {
  std::vector<TokenId> ids(word.size());
  ids.resize(model.read(word, ids.data()).num_ids);
  return ids;
}

TEST(UnigramTest, TakesTheLikeliestTokens) {
  const auto model = make_unigram({{"<unk>", 0}, {"a", 1}, {"b", 2}, {"ab", 3}, {"ba", 4}},
                                  {0, -1, -2, -2.5, -2.4}, 0, /*byte_fallback=*/false);
  EXPECT_THAT(ids_of(*model, "ab"), ElementsAre(3));
  EXPECT_THAT(ids_of(*model, "aba"), ElementsAre(1, 4)) << "-3.4 is more than -3.5";
  EXPECT_THAT(ids_of(*model, "abcxab"), ElementsAre(3, 0, 3)) << "unknown neighbours are one";
}

TEST(UnigramTest, WhatIsUnknownIsItsBytesIfAllAreThere) {
  const auto model = make_unigram({{"<unk>", 0}, {"a", 1}, {"<0xC3>", 2}, {"<0xA9>", 3}},
                                  {0, -1, -5, -5}, 0, /*byte_fallback=*/true);
  EXPECT_THAT(ids_of(*model, "aé"), ElementsAre(1, 2, 3));
  EXPECT_THAT(ids_of(*model, "aö"), ElementsAre(1, 0));
  const auto nothing = make_unigram({{"a", 0}}, {-1}, std::nullopt, /*byte_fallback=*/false);
  std::vector<TokenId> ids(10);
  const WordModel::Read read = nothing->read("éxa", ids.data());
  EXPECT_EQ(read.num_ids, 1U);
  EXPECT_EQ(read.num_without_token, 2U);
}

TEST(WordPieceTest, TakesTheLongestAgainAndAgain) {
  const auto model =
      make_word_piece({{"[UNK]", 0}, {"un", 1}, {"u", 2}, {"##é", 3}, {"##éa", 4}, {"##b", 5}},
                      "##", /*most=*/6, 0);
  EXPECT_THAT(ids_of(*model, "unéab"), ElementsAre(1, 4, 5));
  EXPECT_THAT(ids_of(*model, "uéb"), ElementsAre(2, 3, 5));
  EXPECT_THAT(ids_of(*model, "unc"), ElementsAre(0)) << "as a whole";
  EXPECT_THAT(ids_of(*model, "unéébb"), ElementsAre(1, 3, 3, 5, 5));
  EXPECT_THAT(ids_of(*model, "unéébbb"), ElementsAre(0)) << "seven characters";
}

TEST(AffixedBpeTest, TokensSayWhereInAWordTheyAre) {
  AffixedBpe parts = {
      .vocabulary =
          {{"[UNK]", 0}, {"a", 1}, {"#a", 2}, {"#b_", 3}, {"a_", 4}, {"aa", 5}, {"aab_", 6}},
      .prefix = "#",
      .suffix = "_",
      .unknown = 0,
      .merges = MergeTable(2)};
  parts.merges.insert(1, 2, {.rank = 0, .id = 5});
  parts.merges.insert(5, 3, {.rank = 1, .id = 6});
  const auto model = make_affixed_bpe(parts);
  EXPECT_THAT(ids_of(*model, "a"), ElementsAre(4));
  EXPECT_THAT(ids_of(*model, "aab"), ElementsAre(6));
  EXPECT_THAT(ids_of(*model, "aaab"), ElementsAre(5, 2, 3));
  EXPECT_THAT(ids_of(*model, "aaéüb"), ElementsAre(5, 0, 0, 3));
  parts.fuses_unknown = true;
  EXPECT_THAT(ids_of(*make_affixed_bpe(parts), "aaéüb"), ElementsAre(5, 0, 3));
}

TEST(WordLevelTest, AWordIsATokenOrNone) {
  EXPECT_THAT(ids_of(*make_word_level({{"ab", 7}, {"?", 1}}, 1), "ab"), ElementsAre(7));
  EXPECT_THAT(ids_of(*make_word_level({{"ab", 7}, {"?", 1}}, 1), "abc"), ElementsAre(1));
}

}  // namespace
}  // namespace atl::tokenizer
