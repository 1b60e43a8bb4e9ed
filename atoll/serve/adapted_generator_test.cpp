// Texts with different adapters that are read together are each what they are alone, and share
// nothing that they have read.
#include "atoll/serve/adapted_generator.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/serve/local_generator.h"
#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {
namespace {

using decoding::GenerationRequest;

std::shared_ptr<const model::Adapter> drawn_adapter(uint64_t seed) {
  auto adapter = std::make_shared<model::Adapter>(
      small_model().config(),
      weights::AdapterConfig{.rank = 2, .alpha = 6, .targets = {"q_proj", "v_proj", "up_proj"}},
      model::LayerRange{0, 3}, at::kCPU, model::Purpose::kInference);
  const at::NoGradGuard no_grad;
  const at::Tensor& values_P = adapter->parameters().values_P();
  auto* const values = values_P.mutable_data_ptr<float>();
  for (int64_t i = 0; i < values_P.numel(); ++i) {
    values[i] = 0.3F * static_cast<float>(random_normal(seed, 1, static_cast<uint64_t>(i)));
  }
  return adapter;
}

EngineOptions with_adapters() { return {.adapters = {drawn_adapter(1), drawn_adapter(2)}}; }

/// Of the adapter with that number; 0: none.
std::shared_ptr<Heard> asked(const std::shared_ptr<LocalGenerator>& all, uint64_t adapter,
                             GenerationRequest request) {
  auto heard = std::make_shared<Heard>();
  if (adapter == 0) {
    all->generate(std::move(request), heard);
  } else {
    AdaptedGenerator(all, adapter).generate(std::move(request), heard);
  }
  return heard;
}

GenerationRequest request(uint64_t seed) {
  return {
      .prompt = text(seed, 70), .max_tokens = 12, .sampler = {.temperature = 0}, .top_logprobs = 2};
}

TEST(AdaptedGeneratorTest, TextsWithDifferentAdaptersAreWhatTheyAreAlone) {
  const auto together = std::make_shared<LocalGenerator>(small_model(), with_adapters());
  std::vector<std::shared_ptr<Heard>> heard;
  for (uint64_t i = 0; i < 9; ++i) heard.push_back(asked(together, i % 3, request(i / 3)));
  for (uint64_t i = 0; i < 9; ++i) {
    const auto alone = std::make_shared<LocalGenerator>(small_model(), with_adapters());
    const auto wanted = asked(alone, i % 3, request(i / 3));
    EXPECT_EQ(heard[i]->ids(), wanted->ids()) << i;
    EXPECT_TRUE(heard[i]->scores() == wanted->scores()) << i;
  }
  EXPECT_FALSE(heard[0]->scores() == heard[1]->scores()) << "an adapter changes something";
  EXPECT_FALSE(heard[1]->scores() == heard[2]->scores());
}

TEST(AdaptedGeneratorTest, WhatOneAdapterHasReadIsNotThereForAnother) {
  const auto all = std::make_shared<LocalGenerator>(small_model(), with_adapters());
  for (const uint64_t adapter : {0, 1, 2}) {
    const auto first = asked(all, adapter, request(5));
    first->wait();
    EXPECT_EQ(first->num_cached(), 0) << adapter;
    const auto again = asked(all, adapter, request(5));
    EXPECT_EQ(again->ids(), first->ids());
    EXPECT_EQ(again->num_cached(), 69) << adapter;
  }
}

TEST(AdaptedGeneratorTest, AnAdapterThatOverflowsIsNamedAndTheModelAnswersOn) {
  const auto adapter = drawn_adapter(1);
  {
    const at::NoGradGuard no_grad;
    adapter->parameters().values_P().fill_(1e30);
  }
  const auto all =
      std::make_shared<LocalGenerator>(small_model(), EngineOptions{.adapters = {adapter}});
  const auto heard = asked(all, 1, request(5));
  heard->wait();
  EXPECT_THAT(heard->refusal().message, ::testing::HasSubstr("or of the adapter"));
  EXPECT_EQ(asked(all, 0, request(5))->ids().size(), 12U);
}

}  // namespace
}  // namespace atl::serve
