// Answers by chains of servers, which die, are stopped and are shut down under way, against those
// of the same model in one process: the same tokens, and the same bits of their scores.
#include "atoll/serve/chain_generator.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "atoll/testing_torch/chain_swarm.h"

namespace atl::serve {
namespace {

using ::testing::HasSubstr;

class ChainGeneratorTest : public ChainSwarm {};

constexpr double kTemperature = 1.5;

/// The probability of each pair of second and third tokens behind that text.
std::vector<double> second_and_third(const std::vector<int64_t>& prompt) {
  const at::NoGradGuard no_grad;
  // Behind `prompt` and each of so many continuations of `length` tokens.
  const auto probabilities = [&](int64_t length, int64_t count) {
    const at::Tensor tokens_BT =
        at::empty({count, std::ssize(prompt) + length}, at::TensorOptions().dtype(at::kLong));
    auto* values = tokens_BT.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      values = std::ranges::copy(prompt, values).out;
      if (length == 2) *values++ = i / 61;
      if (length > 0) *values++ = i % 61;
    }
    const at::Tensor hidden_BTC = small_model().hidden_BTC(tokens_BT);
    const at::Tensor last_BC = hidden_BTC.select(1, hidden_BTC.size(1) - 1).contiguous();
    return at::softmax(small_model().logits(last_BC).to(at::kDouble) / kTemperature, 1);
  };
  const at::Tensor first_V = probabilities(0, 1)[0];
  const at::Tensor second_VV = probabilities(1, 61);
  const at::Tensor third_VVV = probabilities(2, 61 * 61).view({61, 61, 61});
  const at::Tensor joint_VV =
      (first_V.view({61, 1, 1}) * second_VV.view({61, 61, 1}) * third_VVV).sum(0).contiguous();
  const double* begin = joint_VV.const_data_ptr<double>();
  return {begin, begin + joint_VV.numel()};
}

TEST_F(ChainGeneratorTest, ChainsGiveTheBitsOfOneProcess) {
  serve("a", {0, 1});
  serve("b", {1, 2});
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, requests(30));
  expect_same(heard, requests(30));
  EXPECT_TRUE(generator->is_served());
}

TEST_F(ChainGeneratorTest, AModelIsNotServedWhileLayersAreMissing) {
  serve("a", {0, 2});
  const auto generator = gateway();
  EXPECT_FALSE(generator->is_served());
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(generator->is_served());
  serve("b", {2, 3});
  while (!generator->is_served()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST_F(ChainGeneratorTest, GuessesSaveRoundTripsAndChangeNothing) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  const auto generator = gateway();
  std::vector<int64_t> again;
  for (int i = 0; i < 6; ++i) {
    for (const int64_t id : text(3, 12)) again.push_back(id);
  }
  const std::vector<GenerationRequest> asked{
      {.prompt = again, .max_tokens = 80, .ends = {}, .sampler = {}, .top_logprobs = 1},
      {.prompt = again,
       .max_tokens = 60,
       .ends = {},
       .sampler = {.temperature = 1.0, .seed = 5},
       .logit_bias = {{5, 30.0F}, {6, 30.0F}},  // So that some guesses are right.
       .top_logprobs = 1}};
  auto heard = ask(*generator, asked);
  expect_same(heard, asked);
  while (generator->status().made_tokens < 140) std::this_thread::yield();
  const decoding::GeneratorStatus status = generator->status();
  EXPECT_GT(status.drafted_tokens, 0);
  EXPECT_GT(status.accepted_tokens, 0);
  EXPECT_EQ(status.made_tokens, 140);
}

TEST_F(ChainGeneratorTest, AModelLikeItGuessesWell) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  const model::Model same = make_small_model(5);
  const auto generator = gateway({.model = &same});
  // Drawn by chance, they are right only where guesses are drawn as tokens are.
  const std::vector<GenerationRequest> asked{{.prompt = text(1, 50),
                                              .max_tokens = 100,
                                              .ends = {},
                                              .sampler = {.temperature = 1.3,
                                                          .repetition_penalty = 1.2,
                                                          .frequency_penalty = 0.5,
                                                          .seed = 9},
                                              .top_logprobs = 1}};
  // How many guesses are made hangs on measured times: on a busy machine the model may be held to
  // be too slow. Then it is asked again.
  int64_t drafted = 0;
  int64_t accepted = 0;
  for (int64_t time = 1; time <= 10 && accepted <= 30; ++time) {
    const decoding::GeneratorStatus before = generator->status();
    auto heard = ask(*generator, asked);
    expect_same(heard, asked);
    while (generator->status().made_tokens < time * 100) std::this_thread::yield();
    drafted = generator->status().drafted_tokens - before.drafted_tokens;
    accepted = generator->status().accepted_tokens - before.accepted_tokens;
  }
  EXPECT_GT(accepted, drafted / 2);
  EXPECT_GT(accepted, 30);
}

TEST_F(ChainGeneratorTest, GuessesOfAnotherModelChangeNothing) {
  serve("a", {0, 1});
  serve("b", {1, 3});
  const model::Model other = make_small_model(6);
  const auto generator = gateway({.model = &other});
  auto asked = requests(60);
  asked.push_back({.prompt = text(8, 20),
                   .max_tokens = 40,
                   .ends = {},
                   .sampler = {.temperature = 1, .seed = 4},
                   .grammar = letters()});
  auto heard = ask(*generator, asked);
  expect_same(heard, asked);
  while (generator->status().num_running > 0) std::this_thread::yield();
  EXPECT_GT(generator->status().drafted_tokens, 0);
  EXPECT_LT(generator->status().accepted_tokens, generator->status().drafted_tokens);
}

TEST_F(ChainGeneratorTest, TextsForWhoseGuessesThereIsNoRoomGoOn) {
  serve("a", {0, 3});
  const model::Model same = make_small_model(5);
  const auto generator =
      gateway({.model = &same, .kv_bytes = 3 * 3 * 2 * 2 * 32 * 6 * 4});  // Three pages.
  auto heard = ask(*generator, requests(60));
  expect_same(heard, requests(60));
  EXPECT_GT(generator->status().accepted_tokens, 0);
}

TEST_F(ChainGeneratorTest, AServerThatIsKilledBetweenGuessesIsReplaced) {
  serve("a", {0, 1});
  serve("b", {1, 3});
  serve("b2", {1, 3});
  const model::Model same = make_small_model(5);
  const auto generator = gateway({.model = &same});
  auto heard = ask(*generator, requests(90));
  while (generator->status().made_tokens < 100)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server("b").kill();
  expect_same(heard, requests(90));
}

/// How often the chain's second and third tokens are these, beside the model's probabilities: as a
/// deviate of the normal distribution, after Wilson and Hilferty.
double deviate(const std::vector<std::vector<int64_t>>& answers,
               const std::vector<double>& probabilities) {
  std::vector<int64_t> counts(probabilities.size());
  for (const auto& ids : answers) ++counts[static_cast<size_t>(ids[1] * 61 + ids[2])];
  const auto total = static_cast<double>(answers.size());
  double square = 0;
  double num_cells = 0;
  double rare = 0;  // Together.
  double rare_count = 0;
  const auto add = [&](double expected, double count) {
    square += (count - expected) * (count - expected) / expected;
    ++num_cells;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    const auto count = static_cast<double>(counts[i]);
    if (expected >= 5) {
      add(expected, count);
    } else {
      rare += expected;
      rare_count += count;
    }
  }
  if (rare > 0) add(rare, rare_count);
  const double freedom = num_cells - 1;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(square / freedom) - (1 - spread)) / std::sqrt(spread);
}

TEST_F(ChainGeneratorTest, TokensThatAreGuessedHaveTheModelsDistribution) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  model::Model similar = make_small_model(5);
  similar.parameters().values_P().add_(make_small_model(6).parameters().values_P(), 0.2);
  const auto generator = gateway({.model = &similar, .max_drafts = 200});
  GenerationRequest request{
      .prompt = text(1, 5), .max_tokens = 4, .ends = {}, .sampler = {.temperature = kTemperature}};
  std::vector<std::vector<int64_t>> answers;
  while (std::ssize(answers) < 10'000) {
    std::vector<GenerationRequest> some;
    for (int i = 0; i < 50; ++i) {
      request.sampler.seed = answers.size() + static_cast<uint64_t>(i);
      some.push_back(request);
    }
    for (auto& heard : ask(*generator, some)) answers.push_back(heard->ids());
  }
  EXPECT_GT(generator->status().accepted_tokens, 1000);
  const std::vector<double> probabilities = second_and_third(request.prompt);
  EXPECT_LT(deviate(answers, probabilities), 3.1);  // One in a thousand.
  // One third token in ten that does not follow from its second one would be found.
  for (size_t i = 0; i + 1 < answers.size(); i += 10) answers[i][2] = answers[i + 1][2];
  EXPECT_GT(deviate(answers, probabilities), 3.1);
}

TEST_F(ChainGeneratorTest, WhatTextsBeginWithIsReadOnce) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  const auto generator = gateway();
  std::vector<GenerationRequest> asked;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    asked.push_back({.prompt = text(1, 75),
                     .max_tokens = 20,
                     .ends = {},
                     .sampler = {.temperature = 1.0, .seed = seed},
                     .top_logprobs = 1});
  }
  auto heard = ask(*generator, asked);
  expect_same(heard, asked);
  for (size_t i = 1; i < asked.size(); ++i) EXPECT_EQ(heard[i]->num_cached(), 74);
  // The next question behind an answer that is over.
  std::vector<GenerationRequest> next{asked[0]};
  const std::vector<int64_t> answer = heard[0]->ids();
  next[0].prompt.insert(next[0].prompt.end(), answer.begin(), answer.end());
  next[0].prompt.insert(next[0].prompt.end(), {1, 2, 3});
  heard = ask(*generator, next);
  expect_same(heard, next);
  EXPECT_GE(heard[0]->num_cached(), 75 + 18);
  next[0].tenant = 1;
  heard = ask(*generator, next);
  expect_same(heard, next);
  EXPECT_EQ(heard[0]->num_cached(), 0);
}

TEST_F(ChainGeneratorTest, AServerThatIsKilledUnderWayIsReplaced) {
  serve("a", {0, 1});
  serve("b", {1, 2});
  serve("b2", {1, 3});
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, requests(90));
  while (generator->status().made_tokens < 100)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server("b").kill();
  while (generator->status().made_tokens < 200)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server("c").stop();
  expect_same(heard, requests(90));
}

TEST_F(ChainGeneratorTest, HonestServersAreFoundToBeSo) {
  serve("a", {0, 1});
  serve("b", {1, 3});
  for (const auto precision :
       {chain::Precision::kFp32, chain::Precision::kBf16, chain::Precision::kInt8}) {
    const auto generator = gateway(1, precision);
    std::vector<GenerationRequest> asked = requests(60);
    for (uint64_t seed = 0; seed < 8; ++seed) {  // With guesses, most of them wrong.
      asked.push_back({.prompt = {5, 6, 7, 5, 6, 7, 5, 6},
                       .max_tokens = 80,
                       .ends = {},
                       .sampler = {.temperature = 1.0, .seed = seed},
                       .logit_bias = {{5, 30.0F}, {6, 30.0F}, {7, 30.0F}}});
    }
    auto heard = ask(*generator, asked);
    for (const auto& each : heard) EXPECT_TRUE(each->wait()) << each->refusal().message;
    while (generator->status().audited_tokens < 300) std::this_thread::yield();
    EXPECT_EQ(generator->status().liars, 0);
    EXPECT_LT(generator->status().accepted_tokens, generator->status().drafted_tokens);
  }
}

TEST_F(ChainGeneratorTest, AServerWithOtherWeightsIsFoundAndNotUsedAnyMore) {
  serve("a", {0, 1});
  serve("b", {1, 2}, {}, 1.01F);
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, {{.prompt = text(1, 20), .max_tokens = 200, .sampler = {}}});
  while (generator->status().liars == 0) std::this_thread::yield();
  EXPECT_LE(generator->status().made_tokens, 300);
  while (server("b").log().find("does not use this server any more: its rows are off by") ==
         std::string::npos) {
    std::this_thread::yield();
  }
  serve("b2", {1, 2});
  EXPECT_TRUE(heard[0]->wait()) << heard[0]->refusal().message;
  auto after = ask(*generator, requests(30));
  expect_same(after, requests(30));
  EXPECT_EQ(generator->status().liars, 1);
}

TEST_F(ChainGeneratorTest, SessionsThatDoNotFitWaitForEachOther) {
  serve("a", {0, 3}, {.kv_bytes = 8 * 3 * 2 * 2 * 32 * 6 * 4});
  const auto generator = gateway();
  auto heard = ask(*generator, requests(60));
  expect_same(heard, requests(60));
}

TEST_F(ChainGeneratorTest, WhereThereIsNoRoomForLongItIsToComeAgain) {
  serve("a", {0, 3}, {.kv_bytes = 2 * 3 * 2 * 2 * 32 * 6 * 4});  // 64 positions.
  const auto generator =
      gateway_of(small_model(),
                 {.post = {}, .digest = kDigest, .memory_patience = std::chrono::milliseconds(1)});
  auto heard = ask(*generator, {{.prompt = text(1, 10), .max_tokens = 50, .sampler = {}},
                                {.prompt = text(2, 40), .max_tokens = 20, .sampler = {}}});
  EXPECT_TRUE(heard[0]->wait()) << heard[0]->refusal().message;
  EXPECT_EQ(heard[1]->wait(), std::nullopt);
  EXPECT_EQ(heard[1]->refusal().kind, Refusal::Kind::kBusy);
  EXPECT_GT(heard[1]->refusal().retry_after, Duration{});
  EXPECT_THAT(heard[1]->refusal().message, HasSubstr("no room for more keys and values"));
  const auto never = ask(*generator, {{.prompt = text(3, 60), .max_tokens = 30, .sampler = {}}});
  EXPECT_EQ(never[0]->wait(), std::nullopt);
  EXPECT_EQ(never[0]->refusal().kind, Refusal::Kind::kUnavailable);
  EXPECT_THAT(never[0]->refusal().message, HasSubstr("has memory for the"));
}

TEST_F(ChainGeneratorTest, AServerThatIsShutDownEndsWhatNobodyElseCan) {
  serve("a", {0, 2});
  serve("b", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, requests(90));
  // All six have begun then: who comes to a server that leaves finds nobody for its layers.
  while (generator->status().made_tokens <= 5 * 90) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  server("b").stop();
  expect_same(heard, requests(90));
  EXPECT_TRUE(generator->status().recoveries.empty());
}

TEST_F(ChainGeneratorTest, KeysAndValuesOfServersAndOfTheDraftModelAreCounted) {
  constexpr int64_t kPage = 2 * 2 * 32 * 6 * 4;     // Of one layer.
  serve("a", {0, 2}, {.kv_bytes = 3 * 8 * kPage});  // These servers' pages are of all layers.
  serve("b", {2, 3}, {.kv_bytes = 3 * 5 * kPage});
  const auto plain = gateway();
  const auto expect_capacity = [](const ChainGenerator& generator, int64_t bytes) {
    for (int i = 0; i < 2000 && generator.status().kv_capacity_bytes != bytes; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(generator.status().kv_capacity_bytes, bytes);
  };
  expect_capacity(*plain, 21 * kPage);
  EXPECT_EQ(plain->status().kv_bytes, 0);
  const model::Model draft = make_small_model(6);
  const auto guessing = gateway({.model = &draft, .kv_bytes = 3 * 7 * kPage});
  expect_capacity(*guessing, 42 * kPage);
  auto heard = ask(*guessing, {{.prompt = text(1, 40), .max_tokens = 40, .sampler = {}}});
  EXPECT_TRUE(heard[0]->wait()) << heard[0]->refusal().message;
  EXPECT_GE(guessing->status().kv_bytes, 3 * kPage);
}

TEST_F(ChainGeneratorTest, ARequestThatNobodyCanServeSaysWhichLayersAreMissing) {
  serve("a", {0, 1});
  serve("c", {2, 3});
  const auto generator = gateway();
  auto heard = ask(*generator, {{.prompt = {1, 2}, .max_tokens = 3, .ends = {}, .sampler = {}}});
  EXPECT_EQ(heard[0]->wait(), std::nullopt);
  EXPECT_EQ(heard[0]->refusal().kind, Refusal::Kind::kUnavailable);
  EXPECT_THAT(heard[0]->refusal().message, HasSubstr("no server holds the layers 1 to 1 of 3"));
}

}  // namespace
}  // namespace atl::serve
