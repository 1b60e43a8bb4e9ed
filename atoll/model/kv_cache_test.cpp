#include "atoll/model/kv_cache.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace atl::model {
namespace {

constexpr int64_t kPage = KvPool::kPagePositions;

weights::ModelConfig small() {
  weights::ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 8;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  return config;
}

/// Keys and values of so many positions, in all layers.
void append(KvCache& cache, const at::Tensor& k_THN) {
  ASSERT_TRUE(cache.prepare(k_THN.size(0)));
  for (int64_t layer = 0; layer < 2; ++layer) cache.write(layer, k_THN + layer, k_THN - layer);
  cache.advance(k_THN.size(0));
}

TEST(KvCacheTest, WhatIsWrittenComesBackWhateverThePieces) {
  const at::Tensor k_THN = at::rand({3 * kPage - 5, 2, 2});
  KvCache cache(small(), at::kCPU);
  int64_t begin = 0;
  for (const int64_t size : {int64_t{1}, kPage - 1, kPage + 3, kPage - 8}) {
    append(cache, k_THN.narrow(0, begin, size));
    begin += size;
  }
  ASSERT_EQ(cache.length(), k_THN.size(0));
  EXPECT_TRUE(at::equal(cache.keys_HSN(1, begin), (k_THN + 1).transpose(0, 1)));
  EXPECT_TRUE(at::equal(cache.values_HSN(1, begin), (k_THN - 1).transpose(0, 1)));
  EXPECT_TRUE(at::equal(cache.keys_HSN(0, 3), k_THN.narrow(0, 0, 3).transpose(0, 1)));
}

TEST(KvCacheTest, AForkSharesPagesUntilItWritesIntoOne) {
  const auto pool = std::make_shared<KvPool>(small(), at::kCPU);
  const at::Tensor k_THN = at::rand({kPage + 2, 2, 2});
  KvCache cache(pool);
  append(cache, k_THN);
  KvCache other = cache.fork();
  EXPECT_EQ(pool->num_taken(), 2);
  EXPECT_EQ(other.num_lacking(1), 1);
  append(other, at::rand({1, 2, 2}));
  EXPECT_EQ(pool->num_taken(), 3);
  EXPECT_TRUE(at::equal(cache.keys_HSN(0, kPage + 2), k_THN.transpose(0, 1)));
  EXPECT_TRUE(at::equal(other.keys_HSN(0, kPage + 2), k_THN.transpose(0, 1)));
}

TEST(KvCacheTest, APoolGivesNoMoreThanItHasAndGetsAllBack) {
  const auto pool = std::make_shared<KvPool>(small(), at::kCPU, 2);
  EXPECT_EQ(pool->page_bytes(), 2 * 2 * 2 * kPage * 2 * 4);
  {
    KvCache first(pool);
    append(first, at::rand({kPage + 1, 2, 2}));
    KvCache second(pool);
    EXPECT_FALSE(second.prepare(1));
    first.truncate(kPage);
    EXPECT_EQ(pool->num_left(), 1);
    EXPECT_TRUE(second.prepare(kPage));
    EXPECT_FALSE(second.prepare(kPage + 1));
    KvCache third(pool, first.pages());
    EXPECT_EQ(third.length(), kPage);
    EXPECT_EQ(pool->num_taken(), 2);
  }
  EXPECT_EQ(pool->num_left(), 2);
}

}  // namespace
}  // namespace atl::model
