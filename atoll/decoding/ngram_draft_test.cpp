#include "atoll/decoding/ngram_draft.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atl::decoding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NgramDraft, IsWhatFollowedTheLongestMatch) {
  const std::vector<int64_t> text{1, 2, 3, 9, 9, 7, 2, 3, 4, 5, 8, 1, 2, 3};
  EXPECT_THAT(ngram_draft(text, 2).ids, ElementsAre(9, 9));
  EXPECT_THAT(ngram_draft(text, 0).ids, IsEmpty());
}

TEST(NgramDraft, OfEqualMatchesTheLatestCounts) {
  EXPECT_THAT(ngram_draft(std::vector<int64_t>{5, 6, 1, 5, 6, 2, 5, 6}, 1).ids, ElementsAre(2));
}

TEST(NgramDraft, ATextThatRepeatsItselfGoesOnSo) {
  EXPECT_THAT(ngram_draft(std::vector<int64_t>{4, 4, 4, 4}, 3).ids, ElementsAre(4));
}

TEST(NgramDraft, SaysHowLongTheMatchIs) {
  EXPECT_EQ(ngram_draft(std::vector<int64_t>{9, 2, 3, 5, 2, 3}, 1).num_matched, 2);
  EXPECT_EQ(ngram_draft(std::vector<int64_t>(20, 4), 1).num_matched, NgramDraft::kMostMatched);
}

TEST(NgramDraft, NeedsTwoTokens) {
  EXPECT_THAT(ngram_draft(std::vector<int64_t>{1, 2, 3, 1}, 3).ids, IsEmpty());
  EXPECT_THAT(ngram_draft({}, 3).ids, IsEmpty());
}

}  // namespace
}  // namespace atl::decoding
