#include "atoll/model/kv_pages.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

namespace atl::model {
namespace {

constexpr int64_t kPage = KvPool::kPagePositions;

TEST(KvPagesTest, BitsAreThoseOfTheCacheAndComeBack) {
  weights::ModelConfig config;
  config.num_layers = 3;
  config.hidden_size = 12;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  const PageShape shape{.num_heads = 2, .head_size = 3};
  const auto pool = std::make_shared<KvPool>(config, at::kCPU, at::kBFloat16, LayerRange{0, 3}, 0);
  KvCache cache(pool);
  ASSERT_TRUE(cache.prepare(3 * kPage + 5));
  for (int64_t layer = 0; layer < 3; ++layer) {
    cache.write(layer, at::rand({3 * kPage + 5, 2, 3}), at::rand({3 * kPage + 5, 2, 3}));
  }
  cache.advance(3 * kPage + 5);

  const std::vector<at::Tensor> pages = cache.copied_pages(kPage, 3 * kPage);
  std::vector<at::Tensor> others = {pool->loose_page(), pool->loose_page()};
  for (int64_t layer = 0; layer < 3; ++layer) {
    const std::vector<uint16_t> bits = bits_2CT(pages, layer, shape);
    const at::Tensor keys = cache.keys_HSN(layer, 3 * kPage);
    const at::Tensor values = cache.values_HSN(layer, 3 * kPage);
    for (int64_t t = 0; t < 2 * kPage; ++t) {
      for (int64_t c = 0; c < 6; ++c) {
        const auto at = [&](const at::Tensor& heads_HSN) {
          return heads_HSN[c / 3][kPage + t][c % 3].item<at::BFloat16>().x;
        };
        ASSERT_EQ(bits[c * 2 * kPage + t], at(keys));
        ASSERT_EQ(bits[(6 + c) * 2 * kPage + t], at(values));
      }
    }
    write_bits(bits, layer, shape, others);
  }
  KvCache again(pool);
  ASSERT_TRUE(again.append(others));
  EXPECT_EQ(again.length(), 2 * kPage);
  for (int64_t layer = 0; layer < 3; ++layer) {
    EXPECT_TRUE(at::equal(again.values_HSN(layer, 2 * kPage),
                          cache.values_HSN(layer, 3 * kPage).narrow(1, kPage, 2 * kPage)));
    EXPECT_TRUE(at::equal(again.keys_HSN(layer, 2 * kPage),
                          cache.keys_HSN(layer, 3 * kPage).narrow(1, kPage, 2 * kPage)));
  }
}

}  // namespace
}  // namespace atl::model
