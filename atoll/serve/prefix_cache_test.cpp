#include "atoll/serve/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace atl::serve {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kPage = model::KvPool::kPagePositions;

weights::ModelConfig small() {
  weights::ModelConfig config;
  config.num_layers = 1;
  config.hidden_size = 2;
  config.num_heads = 1;
  config.num_kv_heads = 1;
  return config;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  std::vector<model::KvPage> take(int64_t count) {
    std::vector<model::KvPage> pages;
    for (int64_t i = 0; i < count; ++i) pages.push_back(pool_.take());
    return pages;
  }

  static std::vector<int64_t> text(int64_t length, int64_t first = 0) {
    std::vector<int64_t> tokens(static_cast<size_t>(length));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }

  model::KvPool pool_{small(), at::kCPU};
  PrefixCache cache_;
};

TEST_F(PrefixCacheTest, TheLongestBeginningIsFoundInFullPagesWithoutTheLastToken) {
  const auto pages = take(3);
  cache_.add(0, text(3 * kPage), pages);
  EXPECT_THAT(cache_.find(0, text(3 * kPage + 1)), ElementsAreArray(pages));
  EXPECT_THAT(cache_.find(0, text(3 * kPage)), ElementsAre(pages[0], pages[1]));
  EXPECT_THAT(cache_.find(0, text(kPage)), IsEmpty());
  EXPECT_THAT(cache_.find(1, text(3 * kPage + 1)), IsEmpty());  // Another tenant's.
  std::vector<int64_t> other = text(3 * kPage + 1);
  other[kPage + 1] = 7;
  EXPECT_THAT(cache_.find(0, other), ElementsAre(pages[0]));
  EXPECT_THAT(cache_.find(0, text(2 * kPage, 1)), IsEmpty());
}

TEST_F(PrefixCacheTest, WhatIsHereStaysAndOthersPagesGoBesideIt) {
  const auto pages = take(2);
  cache_.add(0, text(2 * kPage), pages);
  std::vector<int64_t> other = text(2 * kPage + 1);
  other[kPage] = 7;
  const auto others = take(2);
  cache_.add(0, other, others);
  EXPECT_EQ(cache_.num_pages(), 3);
  EXPECT_THAT(cache_.find(0, other), ElementsAre(pages[0], others[1]));
}

TEST_F(PrefixCacheTest, WhatWasUsedLongestAgoGoesFirstItsEndBeforeItsBeginning) {
  cache_.add(0, text(2 * kPage), take(2));
  cache_.add(0, text(kPage, 5), take(1));
  cache_.find(0, text(2 * kPage + 1));
  EXPECT_TRUE(cache_.evict());
  EXPECT_THAT(cache_.find(0, text(kPage + 1, 5)), IsEmpty());
  EXPECT_TRUE(cache_.evict());
  {
    const auto held = cache_.find(0, text(2 * kPage + 1));
    EXPECT_THAT(held, SizeIs(1)) << "its end went first";
    EXPECT_FALSE(cache_.evict()) << "somebody has it";
  }
  EXPECT_TRUE(cache_.evict());
  EXPECT_EQ(pool_.num_taken(), 0);
}

TEST_F(PrefixCacheTest, ATenantsPagesGoAndNobodyElses) {
  cache_.add(0, text(2 * kPage), take(2));
  cache_.add(0, text(2 * kPage, 5), take(2));
  const auto others = take(1);
  cache_.add(1, text(kPage), others);
  cache_.purge(0);
  cache_.purge(2);
  EXPECT_EQ(cache_.num_pages(), 1);
  EXPECT_THAT(cache_.find(0, text(2 * kPage + 1)), IsEmpty());
  EXPECT_THAT(cache_.find(1, text(kPage + 1)), ElementsAre(others[0]));
}

}  // namespace
}  // namespace atl::serve
