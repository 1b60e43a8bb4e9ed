// What one server makes of messages that cannot be, and of strangers' orders.
#include "atoll/serve/block_engine.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "atoll/base/random.h"
#include "atoll/chain/rows.h"
#include "atoll/chain/wire.h"
#include "atoll/serve/adapter_shelf.h"
#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {
namespace {

using chain::Fault;

constexpr chain::SessionId kSession{.gateway = 1, .number = 2};
constexpr int64_t kWidth = 24;

class BlockEngineTest : public ::testing::Test {
 protected:
  explicit BlockEngineTest(bool has_head = true) : engine_(small_model(), {.has_head = has_head}) {}

  /// Rows for the last layer, or for those before it.
  static chain::Work work(int64_t begin, int64_t count, chain::Span layers = {2, 3}) {
    std::vector<float> values_TC;
    for (int64_t i = 0; i < count * kWidth; ++i) {
      values_TC.push_back(static_cast<float>(random_normal(1, 2, static_cast<uint64_t>(i))));
    }
    chain::Work work{.session = kSession, .epoch = 1, .hops = {{"b:1", layers}}, .rows = {}};
    if (layers.end < 3) work.hops.push_back({"c:1", {layers.end, 3}});
    work.rows = chain::encode_rows(values_TC, begin, kWidth, chain::Precision::kFp32);
    return work;
  }
  static decoding::Order order() {
    return {.wanted = decoding::Wanted::kToken, .position = 1, .sampler = {.temperature = 0}};
  }
  std::vector<chain::Message> said(const std::vector<chain::Work>& all) {
    const at::NoGradGuard no_grad;
    for (const chain::Work& each : all) engine_.hear(each, now_);
    while (!engine_.is_idle()) engine_.read(now_);
    return engine_.take_sent();
  }
  void expect_fault(const chain::Work& work, Fault fault) {
    const auto sent = said({work});
    ASSERT_EQ(sent.size(), 1U);
    ASSERT_TRUE(std::holds_alternative<chain::Trouble>(sent[0]));
    EXPECT_EQ(std::get<chain::Trouble>(sent[0]).fault, fault)
        << std::get<chain::Trouble>(sent[0]).reason;
    EXPECT_EQ(engine_.num_sessions(), 0);
  }

  Time now_{std::chrono::seconds(1)};
  BlockEngine engine_;
};

class HeadlessEngineTest : public BlockEngineTest {
 protected:
  HeadlessEngineTest() : BlockEngineTest(false) {}
};

TEST_F(BlockEngineTest, WhatWasOrderedIsDrawn) {
  chain::Work asked = work(0, 3);
  asked.rows.orders = {{}, order(), {.wanted = decoding::Wanted::kHidden}};
  const auto sent = said({asked});
  ASSERT_EQ(sent.size(), 1U);
  const chain::Rows& rows = std::get<chain::Output>(sent[0]).rows;
  ASSERT_EQ(rows.outcomes.size(), 3U);
  EXPECT_TRUE(rows.rows_TC.empty());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(decoding::fits(rows.outcomes[i], asked.rows.orders[i], 61, kWidth)) << i;
  }
}

TEST_F(BlockEngineTest, RowsThatCannotBeAreNotRead) {
  chain::Work other_shape = work(0, 2);
  other_shape.rows.rows_TC.resize(2 * 4 * (kWidth - 1));
  expect_fault(other_shape, Fault::kDamaged);
  chain::Work not_finite = work(0, 2);
  const float nan = std::nanf("");
  std::memcpy(not_finite.rows.rows_TC.data() + not_finite.rows.rows_TC.size() - 4, &nan, 4);
  expect_fault(not_finite, Fault::kDamaged);
  expect_fault(work(199, 2), Fault::kDamaged);
  expect_fault(work(3, 2), Fault::kNotKept);
  expect_fault(work(0, 2, {2, 4}), Fault::kNotKept);
}

TEST_F(BlockEngineTest, TokensAndOrdersThatCannotBeAreRefused) {
  chain::Work token = work(0, 1, {0, 3});
  token.rows.rows_TC.clear();
  token.rows.ids = {61};
  expect_fault(token, Fault::kDamaged);
  token = work(0, 1, {1, 3});
  token.rows.rows_TC.clear();
  token.rows.ids = {5};
  expect_fault(token, Fault::kNotKept);
  chain::Work asked = work(0, 1);
  asked.rows.orders = {order()};
  asked.rows.orders[0].bias = {{int64_t{1} << 40, 1.0F}};
  expect_fault(asked, Fault::kDamaged);
  asked.rows.orders = {{.wanted = decoding::Wanted::kScore, .id = 3, .num_top = 1'000'000}};
  expect_fault(asked, Fault::kDamaged);
}

TEST_F(BlockEngineTest, WhatWasRestoredIsOfTheLayersThatItWasRestoredFor) {
  const auto restore = [&](chain::Span layers) {
    const auto pool = small_model().kv_pool({0, 3});
    const FoundChunks found{
        .pages = {kv::kChunkTokens / model::KvPool::kPagePositions, pool->loose_page().zero_()},
        .levels = std::vector<uint8_t>(static_cast<size_t>(layers.size()), 1)};
    engine_.restore(
        {.session = kSession, .epoch = 1, .layers = layers, .chunks = {}, .holders = {}}, {0, 3},
        found, now_);
    const auto sent = engine_.take_sent();
    ASSERT_EQ(sent.size(), 1U);
    EXPECT_EQ(std::get<chain::Restored>(sent[0]).end, kv::kChunkTokens);
    EXPECT_EQ(std::get<chain::Restored>(sent[0]).levels, found.levels);
  };
  chain::Work behind = work(kv::kChunkTokens, 2);
  behind.hops.front().restored = kv::kChunkTokens;
  restore({1, 3});
  expect_fault(behind, Fault::kNotKept);
  restore({2, 3});
  const auto sent = said({behind});
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(std::get<chain::Output>(sent[0]).rows.begin, kv::kChunkTokens);
}

TEST_F(BlockEngineTest, ATextWaitsForItsAdapterAndHoldsNobodyUp) {
  const at::NoGradGuard no_grad;
  model::Adapter adapter(small_model().config(), {.rank = 2, .alpha = 3, .targets = {"down_proj"}},
                         {0, 3}, at::kCPU, model::Purpose::kInference);
  adapter.parameters().values_P().fill_(0.25);
  AdapterShelf adapters(small_model());
  BlockEngine engine(small_model(), {.adapters = &adapters});
  chain::Work adapted = work(0, 40);
  adapted.adapter = chain::kFirstAdapter;
  chain::Work plain = work(0, 40);
  plain.session.number = 3;
  const auto heard = [&](const std::vector<chain::Work>& all) {
    for (const chain::Work& each : all) engine.hear(each, now_);
    while (!engine.is_idle()) engine.read(now_);
    return engine.take_sent();
  };
  const auto first = heard({adapted, plain});
  ASSERT_EQ(first.size(), 2U);
  const auto& wanted = std::get<chain::Unadapted>(first[0]);
  EXPECT_EQ(wanted.layers, (chain::Span{2, 3}));
  const Bytes without = std::get<chain::Output>(first[1]).rows.rows_TC;
  EXPECT_TRUE(heard({}).empty());  // It asks once.
  for (const auto& part : messages_of(adapter, adapter.parameters().values_P(), wanted.adapter,
                                      chain::kAdapterVersion, wanted.layers)) {
    adapters.put(part);
  }
  const auto second = heard({});
  ASSERT_EQ(second.size(), 1U);
  const auto& output = std::get<chain::Output>(second[0]);
  EXPECT_EQ(output.session, kSession);
  EXPECT_NE(output.rows.rows_TC, without);
  // Another text with it asks for nothing, also where the shelf has lost it for one that goes on.
  adapted.session.number = 4;
  const auto third = heard({adapted});
  ASSERT_EQ(third.size(), 1U);
  EXPECT_EQ(std::get<chain::Output>(third[0]).rows.rows_TC, output.rows.rows_TC);
  adapters.forget_gateway(adapted.session.gateway);
  chain::Work next = work(40, 1);
  next.session.number = 4;
  next.adapter = adapted.adapter;
  EXPECT_TRUE(std::holds_alternative<chain::Output>(heard({next}).at(0)));
  // Of several texts that wait one asks, also where one begins as another does; and they end.
  std::vector<chain::Work> waiting;
  for (uint64_t number = 10; number < 13; ++number) {
    waiting.push_back(work(0, 40));
    waiting.back().session.number = number;
    waiting.back().adapter = chain::kFirstAdapter + 1;
    waiting.back().shares_with = number == 10 ? 0 : 10;
    waiting.back().num_shared = number == 10 ? 0 : 35;
  }
  EXPECT_EQ(heard(waiting).size(), 1U);
  EXPECT_TRUE(engine.is_idle());
  engine.tick(now_ + std::chrono::hours(1));
  EXPECT_EQ(engine.take_sent().size(), 6U);  // And those that had gone on.
  // Without a place for adapters such texts are refused.
  adapted.session = kSession;
  expect_fault(adapted, Fault::kNotKept);
}

TEST_F(BlockEngineTest, AnAdapterThatChangesNoneOfTheLayersIsOneAsWell) {
  const model::Adapter adapter(small_model().config(),
                               {.rank = 2, .alpha = 3, .targets = {"layers.0.self_attn.q_proj"}},
                               {0, 3}, at::kCPU, model::Purpose::kInference);
  AdapterShelf adapters(small_model());
  BlockEngine engine(small_model(), {.adapters = &adapters});
  chain::Work adapted = work(0, 40);
  adapted.adapter = chain::kFirstAdapter;
  engine.hear(adapted, now_);
  while (!engine.is_idle()) engine.read(now_);
  const auto first = engine.take_sent();
  ASSERT_EQ(first.size(), 1U);
  const auto& wanted = std::get<chain::Unadapted>(first[0]);
  const auto parts = messages_of(adapter, adapter.parameters().values_P(), wanted.adapter,
                                 chain::kAdapterVersion, wanted.layers);
  ASSERT_EQ(parts.size(), 1U);
  adapters.put(std::get<chain::Adapt>(chain::decode(chain::encode(parts[0]))));
  while (!engine.is_idle()) engine.read(now_);
  const auto second = engine.take_sent();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<chain::Output>(second[0]));
}

TEST_F(BlockEngineTest, OrdersByARouteThatIsNoMoreAreCheckedAsWell) {
  chain::Work first = work(0, 1);
  first.epoch = 2;
  first.rows.orders = {order()};
  chain::Work late = work(1, 1);
  late.hops.push_back({"c:1", {3, 4}});
  late.rows.orders = {order()};
  late.rows.orders[0].bias = {{int64_t{1} << 40, 1.0F}};
  const auto sent = said({first, late});
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(std::get<chain::Trouble>(sent.back()).fault, Fault::kDamaged);
}

TEST_F(BlockEngineTest, LargeOrdersGoOnAFewAtATime) {
  std::vector<chain::Work> all;
  for (int64_t i = 0; i < 12; ++i) {
    chain::Work one = work(i, 1, {1, 2});
    one.rows.orders = {order()};
    for (int64_t k = 0; k < 20'000; ++k) one.rows.orders[0].seen.push_back({.id = k % 61});
    all.push_back(std::move(one));
  }
  int64_t begin = 0;
  for (const chain::Message& message : said(all)) {
    const chain::Rows& rows = std::get<chain::Work>(message).rows;
    EXPECT_EQ(rows.begin, begin);
    EXPECT_LE(rows.num_tokens, 4U);
    EXPECT_EQ(rows.orders.size(), rows.num_tokens);
    begin = rows.end();
  }
  EXPECT_EQ(begin, 12);
}

TEST_F(BlockEngineTest, WhatSeveralTextsBeginWithIsReadOnceByWhoTakesAPlaceInTheirChain) {
  const Time now(std::chrono::seconds(1));
  const auto hear = [now](BlockEngine& engine, uint64_t number, int64_t begin, bool is_told) {
    chain::Work rows = work(begin, 20);
    rows.session.number = number;
    rows.hops.front().send_from = 45;
    if (is_told && number > 2) {
      rows.shares_with = 2;
      rows.num_shared = 40;
    }
    engine.hear(rows, now);
  };
  const auto outputs = [&](bool is_told, bool is_slow, int64_t& num_free) {
    const at::NoGradGuard no_grad;
    BlockEngine engine(small_model(), {});
    const auto read = [&] {
      while (!engine.is_idle()) engine.read(now);
    };
    if (is_slow) {  // As a gateway sends them: what was read lets it send more.
      for (const int64_t begin : {0, 20, 40}) {
        for (uint64_t number = 2; number < 6; ++number) hear(engine, number, begin, is_told);
        read();
      }
    } else {  // As they were kept by a server that sends them again.
      for (uint64_t number = 2; number < 6; ++number) {
        for (const int64_t begin : {0, 20, 40}) hear(engine, number, begin, is_told);
      }
      read();
    }
    num_free = engine.num_free();
    std::map<uint64_t, std::vector<std::byte>> found;
    for (const chain::Message& message : engine.take_sent()) {
      const auto& output = std::get<chain::Output>(message);
      Bytes& rows = found[output.session.number];
      rows.insert(rows.end(), output.rows.rows_TC.begin(), output.rows.rows_TC.end());
    }
    return found;
  };
  int64_t free_alone = 0;
  int64_t free_told = 0;
  const auto alone = outputs(false, false, free_alone);
  EXPECT_EQ(alone.size(), 4U);
  for (const bool is_slow : {false, true}) {
    EXPECT_EQ(outputs(true, is_slow, free_told), alone) << is_slow;
    EXPECT_GE(free_told, free_alone + 3 * 32) << "a page of each is the first one's";
  }
}

TEST_F(HeadlessEngineTest, NothingIsDrawnWhereThereIsNoHead) {
  chain::Work asked = work(0, 1);
  asked.rows.orders = {order()};
  expect_fault(asked, Fault::kNotKept);
  chain::Work first = work(0, 1);
  first.session.number = 4;
  first.epoch = 2;
  chain::Work late = work(1, 1);
  late.session.number = 4;
  late.hops.push_back({"c:1", {3, 4}});  // By its own word it does not end here.
  late.rows.orders = {order()};
  const auto sent = said({first, late});
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(std::get<chain::Trouble>(sent.back()).fault, Fault::kDamaged);
  chain::Work token = work(0, 1, {0, 3});
  token.session.number = 3;
  token.rows.rows_TC.clear();
  token.rows.ids = {5};
  expect_fault(token, Fault::kNotKept);
}

}  // namespace
}  // namespace atl::serve
