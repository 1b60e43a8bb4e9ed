// Gateways without weights: the servers embed and draw, and every answer has the bits that it has
// where the gateway does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/testing_torch/chain_swarm.h"

namespace atl::serve {
namespace {

using ::testing::HasSubstr;

constexpr BlockEngineOptions kHead{.has_head = true};

class HeadlessGatewayTest : public ChainSwarm {
 protected:
  /// Whatever an order can say.
  static std::vector<GenerationRequest> all_kinds(int64_t max_tokens) {
    std::vector<GenerationRequest> asked = requests(max_tokens);
    asked.push_back({.prompt = text(8, 20),
                     .max_tokens = max_tokens,
                     .ends = {},
                     .sampler = {.temperature = 1, .seed = 4},
                     .grammar = letters()});
    asked.push_back({.prompt = text(9, 30),
                     .max_tokens = max_tokens,
                     .ends = {7, 30},
                     .sampler = {.temperature = 1.3,
                                 .top_k = 30,
                                 .top_p = 0.95,
                                 .min_p = 0.001,
                                 .repetition_penalty = 1.2,
                                 .frequency_penalty = 0.5,
                                 .presence_penalty = 0.25,
                                 .seed = 9},
                     .logit_bias = {{3, 1.5F}, {11, -20.0F}},
                     .top_logprobs = 3});
    asked.push_back({.prompt = text(3, 70),
                     .max_tokens = 0,
                     .ends = {},
                     .sampler = {},
                     .top_logprobs = 1,
                     .scores_prompt = true});
    return asked;
  }
};

TEST_F(HeadlessGatewayTest, AnswersAreThoseOfOneProcess) {
  serve("a", {0, 1}, kHead);
  serve("b", {1, 2});
  serve("c", {2, 3}, kHead);
  const auto generator = headless_gateway();
  auto heard = ask(*generator, all_kinds(40));
  expect_same(heard, all_kinds(40));
  EXPECT_TRUE(generator->is_served());
}

TEST_F(HeadlessGatewayTest, OneServerMayEmbedAndDrawBesideGatewaysThatDo) {
  serve("a", {0, 3}, kHead);
  const auto headless = headless_gateway();
  const auto usual = gateway();
  auto heard = ask(*headless, all_kinds(30));
  auto others = ask(*usual, all_kinds(30));
  expect_same(heard, all_kinds(30));
  expect_same(others, all_kinds(30));
}

TEST_F(HeadlessGatewayTest, GuessesOfAModelHereAreDrawnThere) {
  serve("a", {0, 2}, kHead);
  serve("b", {2, 3}, kHead);
  const model::Model same = make_small_model(5);
  const auto generator = headless_gateway({.model = &same});
  auto heard = ask(*generator, all_kinds(90));
  expect_same(heard, all_kinds(90));
  while (generator->status().num_running > 0) std::this_thread::yield();
  EXPECT_GT(generator->status().accepted_tokens, generator->status().drafted_tokens / 2);
}

TEST_F(HeadlessGatewayTest, GuessesThatAreWrongChangeNothing) {
  serve("a", {0, 2}, kHead);
  serve("b", {2, 3}, kHead);
  const model::Model other = make_small_model(6);
  const auto generator = headless_gateway({.model = &other});
  auto heard = ask(*generator, all_kinds(60));
  expect_same(heard, all_kinds(60));
  EXPECT_LT(generator->status().accepted_tokens, generator->status().drafted_tokens);
}

TEST_F(HeadlessGatewayTest, AServerThatIsKilledIsReplacedByOneWithAHead) {
  for (const auto& [name, layers, engine] :
       {std::tuple("a", chain::Span{0, 1}, kHead), std::tuple("a2", chain::Span{0, 1}, kHead),
        std::tuple("b", chain::Span{1, 2}, BlockEngineOptions{}),
        std::tuple("b2", chain::Span{1, 2}, BlockEngineOptions{}),
        std::tuple("c", chain::Span{2, 3}, kHead), std::tuple("c2", chain::Span{2, 3}, kHead),
        std::tuple("none", chain::Span{0, 3}, BlockEngineOptions{})}) {
    serve(name, layers, engine);
  }
  const auto generator = headless_gateway();
  auto heard = ask(*generator, all_kinds(90));
  int64_t made = 0;
  for (const char* name : {"c", "b", "a"}) {
    made += 80;
    while (generator->status().made_tokens < made) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    server(name).kill();
  }
  expect_same(heard, all_kinds(90));
}

TEST_F(HeadlessGatewayTest, MeansOfHiddenStatesAreTheSame) {
  class Mean final : public decoding::EmbeddingListener {
   public:
    void embedded(std::vector<float> mean_C) override { mean_.set_value(std::move(mean_C)); }
    void failed(const Refusal& refusal) override { FAIL() << refusal.message; }
    std::vector<float> wait() { return mean_.get_future().get(); }

   private:
    std::promise<std::vector<float>> mean_;
  };
  serve("a", {0, 2}, kHead);
  serve("b", {2, 3}, kHead);
  const auto headless = headless_gateway();
  const auto usual = gateway();
  const auto mean = [](decoding::Generator& generator) {
    const auto listener = std::make_shared<Mean>();
    generator.embed(text(4, 90), 0, listener);
    return listener->wait();
  };
  EXPECT_EQ(mean(*headless), mean(*usual));
}

TEST_F(HeadlessGatewayTest, WithoutServersThatHaveAHeadItSaysSo) {
  serve("a", {0, 1});
  serve("b", {1, 3}, kHead);
  const auto generator = headless_gateway();
  auto heard = ask(*generator, {{.prompt = {1, 2}, .max_tokens = 3, .ends = {}, .sampler = {}}});
  EXPECT_EQ(heard[0]->wait(), std::nullopt);
  EXPECT_EQ(heard[0]->refusal().kind, Refusal::Kind::kUnavailable);
  EXPECT_THAT(heard[0]->refusal().message, HasSubstr("start some of those with --head"));
  EXPECT_FALSE(generator->is_served());
}

}  // namespace
}  // namespace atl::serve
