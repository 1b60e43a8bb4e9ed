// What is recomputed behind keys and values that servers say they have had.
#include "atoll/serve/auditor.h"

#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <span>
#include <utility>
#include <vector>

#include "atoll/chain/fingerprint.h"
#include "atoll/serve/sequence.h"
#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {
namespace {

constexpr int64_t kBehind = 20;  // Tokens.
const std::vector<chain::Hop> kHops{
    {.address = "a:1", .layers = {0, 2}, .restored = kv::kChunkTokens},
    {.address = "b:1", .layers = {2, 3}, .restored = kv::kChunkTokens}};

/// Of a chunk, for a hop's layers: not what the model would make of its tokens.
std::vector<at::Tensor> some_pages(size_t hop) {
  const chain::Span& layers = kHops[hop].layers;
  const auto pool = small_model().kv_pool({layers.begin, layers.end});
  std::vector<at::Tensor> pages;
  for (int64_t i = 0; i < kv::kChunkTokens / model::KvPool::kPagePositions; ++i) {
    pages.push_back((at::rand_like(pool->loose_page()) - 0.5).mul_(100));
  }
  return pages;
}

/// As servers that have these pages read the tokens behind them.
AuditWork read_by_servers(const std::vector<std::vector<at::Tensor>>& pages) {
  AuditWork work{.number = 7,
                 .tokens = text(3, kv::kChunkTokens + kBehind),
                 .known = {.group = {}, .chunks = {kv::Chunk{}}, .levels = {{1, 1}, {1}}},
                 .hops = kHops,
                 .said = {},
                 .arrived = {},
                 .arrived_from = kv::kChunkTokens};
  chain::Witness witness;
  const auto see = [&](const at::Tensor& x_TC) {
    return witness.see({x_TC.const_data_ptr<float>(), static_cast<size_t>(x_TC.numel())},
                       x_TC.size(1));
  };
  const auto behind_nothing = [&](const at::Tensor& x_TC) {
    std::vector<chain::Fingerprint> said(kv::kChunkTokens);
    const auto seen = see(x_TC);
    said.insert(said.end(), seen.begin(), seen.end());
    return said;
  };
  const model::Model& model = small_model();
  model::KvCache none(model.kv_pool({}));
  none.advance(kv::kChunkTokens);
  const model::CachedRow embedded{&none, kBehind};
  const auto ids = std::span(work.tokens).subspan(kv::kChunkTokens);
  at::Tensor x_TC = model.decoder().embed(tensor_1T(ids), std::span(&embedded, 1))[0].contiguous();
  for (size_t i = 0; i < kHops.size(); ++i) {
    const model::LayerRange layers{kHops[i].layers.begin, kHops[i].layers.end};
    model::KvCache cache(model.kv_pool(layers));
    EXPECT_TRUE(cache.append(pages[i]) && cache.prepare(kBehind));
    chain::Testimony said;
    said.received = behind_nothing(x_TC);
    const model::CachedRow row{&cache, kBehind};
    x_TC = model.layers_1TC(layers, x_TC.unsqueeze(0), std::span(&row, 1))[0].contiguous();
    said.made = behind_nothing(x_TC);
    work.said.push_back(std::move(said));
  }
  work.arrived = see(x_TC);
  return work;
}

chain::Recomputed recomputed(const AuditWork& work,
                             const std::vector<std::vector<at::Tensor>>& pages) {
  return recompute(
      small_model(), work, [&](size_t hop) { return pages[hop]; }, [] { return false; });
}

TEST(Auditor, BehindWhatServersHadTheirRowsAreRecomputed) {
  const std::vector<std::vector<at::Tensor>> pages{some_pages(0), some_pages(1)};
  const AuditWork work = read_by_servers(pages);
  const chain::Recomputed found = recomputed(work, pages);
  ASSERT_EQ(found.hops.size(), 2U);
  for (const auto& hop : found.hops) {
    EXPECT_TRUE(hop.is_restored);
    EXPECT_LT(hop.received, chain::kMostDifference / 10);
    EXPECT_LT(hop.made, chain::kMostDifference / 10);
  }
  EXPECT_LT(found.arrived, chain::kMostDifference / 10);
  EXPECT_EQ(chain::judge(found, /*is_mixed=*/true).kind, chain::Verdict::Kind::kGood);
}

TEST(Auditor, OtherKeysAndValuesThanAServerSaysAreFound) {
  const std::vector<std::vector<at::Tensor>> pages{some_pages(0), some_pages(1)};
  const AuditWork work = read_by_servers({pages[0], some_pages(1)});
  const chain::Recomputed found = recomputed(work, pages);
  ASSERT_EQ(found.hops.size(), 2U);
  EXPECT_LT(found.hops[0].made, chain::kMostDifference / 10);
  EXPECT_GT(found.hops[1].made, chain::kMostDifference);
  // It may be another one's, who has kept it.
  EXPECT_EQ(chain::judge(found, /*is_mixed=*/true).kind, chain::Verdict::Kind::kUnknown);
}

TEST(Auditor, WhatIsNotToBeHadIsNotJudged) {
  const std::vector<std::vector<at::Tensor>> pages{some_pages(0), some_pages(1)};
  const AuditWork work = read_by_servers(pages);
  EXPECT_TRUE(recomputed(work, {pages[0], {}}).hops.empty());
}

}  // namespace
}  // namespace atl::serve
