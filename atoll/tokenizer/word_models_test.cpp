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
  const auto model = make_unigram({{"<unk>", 0}, {"a", -1}, {"b", -2}, {"ab", -2.5}, {"ba", -2.4}},
                                  0, /*byte_fallback=*/false);
  EXPECT_THAT(ids_of(*model, "ab"), ElementsAre(3));
  EXPECT_THAT(ids_of(*model, "aba"), ElementsAre(1, 4)) << "-3.4 is more than -3.5";
  EXPECT_THAT(ids_of(*model, "abcxab"), ElementsAre(3, 0, 3)) << "unknown neighbours are one";
}

TEST(UnigramTest, WhatIsUnknownIsItsBytesIfAllAreThere) {
  std::vector<ScoredToken> tokens = {{"<unk>", 0}, {"a", -1}};
  for (const char* byte : {"<0xC3>", "<0xA9>"}) tokens.push_back({byte, -5});
  const auto model = make_unigram(tokens, 0, /*byte_fallback=*/true);
  EXPECT_THAT(ids_of(*model, "aé"), ElementsAre(1, 2, 3));
  EXPECT_THAT(ids_of(*model, "aö"), ElementsAre(1, 0));
  const auto nothing = make_unigram({{"a", -1}}, std::nullopt, /*byte_fallback=*/false);
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

TEST(WordLevelTest, AWordIsATokenOrNone) {
  EXPECT_THAT(ids_of(*make_word_level({{"ab", 7}, {"?", 1}}, 1), "ab"), ElementsAre(7));
  EXPECT_THAT(ids_of(*make_word_level({{"ab", 7}, {"?", 1}}, 1), "abc"), ElementsAre(1));
}

}  // namespace
}  // namespace atl::tokenizer
