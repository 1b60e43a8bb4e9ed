// Answers that are made together against each one made alone (serve/generate.h).
#include "atoll/serve/local_generator.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/grammar/json_schema.h"
#include "atoll/grammar/matcher.h"
#include "atoll/serve/generate.h"
#include "atoll/testing_torch/served_texts.h"

namespace atl::serve {
namespace {

using decoding::GenerationRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kPageBytes = 3 * 2 * 2 * 32 * 6 * 4;  // Of the model that they share.

std::vector<int64_t> alone(const GenerationRequest& request) {
  const std::vector<std::vector<int64_t>> prompts{request.prompt};
  return generate(small_model(), prompts,
                  {.max_tokens = request.max_tokens,
                   .ends = request.ends,
                   .sampler = request.sampler,
                   .max_guesses = 0},
                  {})
      .at(0)
      .ids;
}

std::vector<GenerationRequest> various() {
  std::vector<GenerationRequest> requests;
  for (uint64_t i = 0; i < 12; ++i) {
    requests.push_back({.prompt = text(i, 1 + static_cast<int64_t>(i * 37 % 130)),
                        .max_tokens = 5 + static_cast<int64_t>(i * 11 % 40),
                        .ends = {7},
                        .sampler = {.temperature = i % 3 == 0 ? 0.0 : 1.0, .seed = i}});
  }
  return requests;
}

TEST(LocalGeneratorTest, EachAnswerIsThatWhichIsMadeAloneWhateverTheBudget) {
  const std::vector<GenerationRequest> requests = various();
  for (const EngineOptions& options : {
           EngineOptions{}, EngineOptions{.max_running = 3, .prompt_tokens = 5},
           EngineOptions{.kv_bytes = 10 * kPageBytes, .prompt_tokens = 40},  // Texts give way.
       }) {
    LocalGenerator generator(small_model(), options);
    std::vector<std::shared_ptr<Heard>> heard;
    for (const GenerationRequest& request : requests) {
      heard.push_back(std::make_shared<Heard>());
      generator.generate(request, heard.back());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->ids(), alone(requests[i])) << i << ", " << options.kv_bytes;
    }
    const decoding::GeneratorStatus status = generator.status();
    EXPECT_EQ(status.num_waiting, 0);
    EXPECT_LE(status.kv_bytes, status.kv_capacity_bytes);
  }
}

/// Whose keys hang on their text's length from 50 tokens on.
model::Model model_of_stretched_positions(const std::string& rope_type) {
  weights::ModelConfig config = small_model().config();
  config.rope_type = rope_type;
  config.rope_factor = 4;
  if (rope_type == "dynamic") config.max_positions = 50;
  if (rope_type == "longrope") {
    config.architecture = "phi3";
    config.rope_original_positions = 50;
    config.rope_short_factors = "1,1.1,1.25";
    config.rope_long_factors = "1.5,2,3.75";
  }
  model::Model model(config, at::kCPU, model::Purpose::kInference);
  model.initialise(5);
  model.parameters().values_P().mul_(8);
  return model;
}

TEST(LocalGeneratorTest, TextsWhoseKeysHangOnTheirLengthAreAnsweredAsTheyAreAlone) {
  for (const char* rope_type : {"longrope", "dynamic"}) {
    const model::Model model = model_of_stretched_positions(rope_type);
    LocalGenerator generator(model, {.prompt_tokens = 8});
    std::vector<std::vector<int64_t>> wanted;
    std::vector<std::shared_ptr<Heard>> heard;
    // One that grows over it, some that begin behind it, and those below.
    for (const int64_t length : {45, 51, 90, 20, 130, 49}) {
      const std::vector<std::vector<int64_t>> prompts{text(3, length)};
      const decoding::SamplerOptions sampler{.temperature = 0};
      wanted.push_back(
          generate(model, prompts, {.max_tokens = 12, .sampler = sampler}, {}).at(0).ids);
      heard.push_back(std::make_shared<Heard>());
      generator.generate({.prompt = prompts[0], .max_tokens = 12, .sampler = sampler},
                         heard.back());
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(heard[i]->ids(), wanted[i]) << rope_type << ' ' << i;
    }
  }
}

TEST(LocalGeneratorTest, AnswersThatGiveWayAreStillWhereTheyWereInTheirGrammar) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 61; ++i) tokens.emplace_back(1, static_cast<char>(' ' + i));
  const auto masks = std::make_shared<const grammar::TokenMasks>(
      grammar::schema_grammar(R"({"type": "string", "minLength": 20, "maxLength": 40})"),
      std::make_shared<grammar::Vocabulary>(tokens, std::vector<grammar::TokenId>{7}));
  std::vector<std::vector<int64_t>> first;
  for (const EngineOptions& options :
       {EngineOptions{}, EngineOptions{.kv_bytes = 10 * kPageBytes, .prompt_tokens = 40}}) {
    LocalGenerator generator(small_model(), options);
    std::vector<std::shared_ptr<Heard>> heard;
    for (GenerationRequest request : various()) {
      request.max_tokens = 60;
      request.grammar = masks;
      heard.push_back(std::make_shared<Heard>());
      generator.generate(request, heard.back());
    }
    std::vector<std::vector<int64_t>> found;
    for (const auto& one : heard) {
      EXPECT_EQ(one->wait(), FinishReason::kStop);
      found.push_back(one->ids());
      grammar::Matcher matcher(masks);
      for (const int64_t id : found.back()) {
        ASSERT_TRUE(matcher.advance(static_cast<grammar::TokenId>(id)));
      }
      EXPECT_TRUE(matcher.may_end());
    }
    if (first.empty()) first = found;
    EXPECT_EQ(found, first);
  }
}

TEST(LocalGeneratorTest, WhereNoTokenGoesOnTheAnswerFailsAndTheOthersGoOn) {
  std::vector<std::string> tokens(61);
  tokens[5] = "a";
  GenerationRequest stuck{.prompt = {1}};
  stuck.grammar = std::make_shared<const grammar::TokenMasks>(
      grammar::choice_grammar(std::vector<std::string>{"ab"}),
      std::make_shared<grammar::Vocabulary>(tokens, std::vector<grammar::TokenId>{}));
  LocalGenerator generator(small_model(), {});
  const GenerationRequest other = various()[0];
  const auto heard = std::make_shared<Heard>();
  const auto of_other = std::make_shared<Heard>();
  generator.generate(stuck, heard);
  generator.generate(other, of_other);
  EXPECT_EQ(heard->wait(), std::nullopt);
  EXPECT_THAT(heard->refusal().message, HasSubstr("vocabulary"));
  EXPECT_EQ(of_other->ids(), alone(other));
}

TEST(LocalGeneratorTest, WhatPromptsShareIsReadOnceAndChangesNothing) {
  LocalGenerator generator(small_model(), {});
  GenerationRequest request{.prompt = text(3, 100), .max_tokens = 8, .sampler = {.temperature = 0}};
  const std::vector<int64_t> wanted = alone(request);
  for (const int64_t expected : {0, 99, 99}) {  // What follows the last one is to be computed.
    const auto heard = std::make_shared<Heard>();
    generator.generate(request, heard);
    EXPECT_EQ(heard->ids(), wanted);
    EXPECT_EQ(heard->num_cached(), expected);
  }
  // Several at once: the others wait for the first one's reading.
  request.prompt = text(4, 80);
  std::vector<std::shared_ptr<Heard>> heard;
  for (int i = 0; i < 4; ++i) {
    heard.push_back(std::make_shared<Heard>());
    generator.generate(request, heard.back());
  }
  int64_t num_read = 0;
  for (const auto& each : heard) {
    EXPECT_EQ(each->ids(), alone(request));
    if (each->num_cached() == 0) num_read += 1;
  }
  EXPECT_EQ(num_read, 1);
}

TEST(LocalGeneratorTest, GuessesThatAreRightSavePassesAndThoseThatAreWrongChangeNothing) {
  GenerationRequest request{
      .prompt = text(12, 20), .max_tokens = 160, .ends = {}, .sampler = {.temperature = 0}};
  const std::vector<int64_t> wanted = alone(request);
  {  // The likeliest tokens of so small a model soon repeat themselves.
    LocalGenerator generator(small_model(), {});
    request.prompt.insert(request.prompt.end(), wanted.begin(), wanted.begin() + 130);
    request.max_tokens = 30;
    const auto heard = std::make_shared<Heard>();
    generator.generate(request, heard);
    EXPECT_EQ(heard->ids(), std::vector<int64_t>(wanted.begin() + 130, wanted.end()));
    const decoding::GeneratorStatus status = generator.status();
    EXPECT_GT(status.accepted_tokens, 0);
    EXPECT_LE(status.accepted_tokens, status.drafted_tokens);
  }
  for (const EngineOptions& options :
       {EngineOptions{}, EngineOptions{.kv_bytes = 10 * kPageBytes, .prompt_tokens = 40}}) {
    LocalGenerator generator(small_model(), options);
    std::vector<GenerationRequest> requests;
    for (const double temperature : {0.0, 0.7, 1.5}) {
      requests.push_back(request);
      requests.back().sampler = {.temperature = temperature, .repetition_penalty = 1.05};
      requests.back().top_logprobs = 1;
    }
    std::vector<std::shared_ptr<Heard>> heard;
    for (const GenerationRequest& each : requests) {
      heard.push_back(std::make_shared<Heard>());
      generator.generate(each, heard.back());
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(heard[i]->ids(), alone(requests[i])) << i;
    }
    EXPECT_EQ(generator.status().made_tokens, 3 * 30);
  }
}

TEST(LocalGeneratorTest, ScoresAreTheModelsOfThePromptToo) {
  LocalGenerator generator(small_model(), {.prompt_tokens = 9});
  const std::vector<int64_t> prompt = text(5, 70);
  for (int round = 0; round < 2; ++round) {  // Pages that are there do not hide scores.
    const auto heard = std::make_shared<Heard>();
    generator.generate({.prompt = prompt,
                        .max_tokens = 3,
                        .sampler = {.temperature = 0},
                        .top_logprobs = 2,
                        .scores_prompt = true},
                       heard);
    std::vector<int64_t> all = prompt;
    for (const int64_t id : heard->ids()) all.push_back(id);
    ASSERT_EQ(heard->prompt_scores().size(), prompt.size() - 1);
    ASSERT_EQ(heard->scores().size(), 3U);
    const at::Tensor tokens =
        at::tensor(at::ArrayRef<int64_t>(all.data(), all.size()), at::kLong).unsqueeze(0);
    const at::Tensor logprobs_TV =
        small_model().logits(small_model().hidden_BTC(tokens))[0].to(at::kDouble).log_softmax(1);
    for (size_t i = 1; i < all.size(); ++i) {
      const TokenScore& score =
          i < prompt.size() ? heard->prompt_scores()[i - 1] : heard->scores()[i - prompt.size()];
      const at::Tensor row_V = logprobs_TV[static_cast<int64_t>(i) - 1];
      EXPECT_EQ(score.id, all[i]);
      EXPECT_NEAR(score.logprob, row_V[all[i]].item<double>(), 1e-9);
      ASSERT_EQ(score.top.size(), 2U);
      EXPECT_EQ(score.top[0].first, row_V.argmax().item<int64_t>());
    }
  }
}

TEST(LocalGeneratorTest, ListenersAndLimitsEndAnswers) {
  LocalGenerator generator(small_model(), {});
  const GenerationRequest request{
      .prompt = text(6, 190), .max_tokens = 1000, .sampler = {.temperature = 0}};
  const auto full = std::make_shared<Heard>();
  generator.generate(request, full);
  EXPECT_EQ(full->wait(), FinishReason::kLength);
  EXPECT_EQ(full->ids().size(), 10U) << "the context";
  const auto stopped = std::make_shared<Heard>();
  stopped->stop_after(4);
  generator.generate(request, stopped);
  EXPECT_EQ(stopped->wait(), FinishReason::kStop);
  EXPECT_EQ(stopped->ids().size(), 4U);
  const auto none = std::make_shared<Heard>();
  generator.generate({.prompt = {1, 2}, .max_tokens = 0}, none);
  EXPECT_EQ(none->wait(), FinishReason::kLength);
  EXPECT_THAT(none->ids(), IsEmpty());
}

TEST(LocalGeneratorTest, WhatCanNeverBeAnsweredIsRefusedAtOnce) {
  LocalGenerator generator(small_model(), {});
  for (const auto& [prompt, reason] : std::vector<std::pair<std::vector<int64_t>, std::string>>{
           {{}, "no tokens"}, {text(1, 201), "has 201 tokens and"}, {{61}, "the id 61"}}) {
    const auto heard = std::make_shared<Heard>();
    generator.generate({.prompt = prompt}, heard);
    EXPECT_EQ(heard->wait(), std::nullopt);
    EXPECT_EQ(heard->refusal().kind, Refusal::Kind::kInvalid);
    EXPECT_THAT(heard->refusal().message, HasSubstr(reason));
  }
}

TEST(LocalGeneratorTest, WhatIsCancelledIsHeardNoMoreAndTheOthersGoOn) {
  LocalGenerator generator(small_model(), {});
  const auto lost = std::make_shared<Heard>();
  const auto kept = std::make_shared<Heard>();
  const GenerationRequest request{
      .prompt = text(8, 20), .max_tokens = 150, .sampler = {.temperature = 0}};
  generator.cancel(generator.generate(request, lost));
  const size_t heard_then = lost->scores().size();
  generator.generate(request, kept);
  EXPECT_EQ(kept->ids(), alone(request));
  EXPECT_EQ(lost->scores().size(), heard_then);
  EXPECT_EQ(lost.use_count(), 1) << "it is let go of";
}

class HeardMean final : public decoding::EmbeddingListener {
 public:
  void embedded(std::vector<float> mean_C) override { mean_.set_value(std::move(mean_C)); }
  void failed(const Refusal& /*refusal*/) override { mean_.set_value({}); }
  std::vector<float> wait() { return mean_.get_future().get(); }

 private:
  std::promise<std::vector<float>> mean_;
};

TEST(LocalGeneratorTest, EmbeddingsAreMeansOfHiddenStates) {
  LocalGenerator generator(small_model(), {.prompt_tokens = 20});
  const std::vector<int64_t> ids = text(9, 50);
  const auto heard = std::make_shared<HeardMean>();
  generator.embed(ids, 0, heard);
  const std::vector<float> mean = heard->wait();
  const at::Tensor tokens =
      at::tensor(at::ArrayRef<int64_t>(ids.data(), ids.size()), at::kLong).unsqueeze(0);
  const at::Tensor wanted = small_model().hidden_BTC(tokens)[0].to(at::kDouble).mean(0);
  ASSERT_EQ(mean.size(), 24U);
  for (size_t i = 0; i < mean.size(); ++i) {
    EXPECT_NEAR(mean[i], wanted[static_cast<int64_t>(i)].item<double>(), 1e-5);
  }
}

TEST(PlanPassTest, NewestTokensFirstThenPromptsInTheirOrder) {
  EXPECT_THAT(plan_pass(std::vector<int64_t>{1, 30, 1, 30, 5}, 40), ElementsAre(1, 30, 1, 10, 0));
  EXPECT_THAT(plan_pass({}, 40), IsEmpty());
}

TEST(LocalGeneratorTest, WhatIsUnderWayWhenItIsShutDownFailsAndSoDoesWhatComesLater) {
  LocalGenerator generator(small_model(), {});
  const GenerationRequest request{
      .prompt = text(1, 3), .max_tokens = 190, .ends = {}, .sampler = {}};
  const auto before = std::make_shared<Heard>();
  const auto after = std::make_shared<Heard>();
  generator.generate(request, before);
  generator.shut_down("the end");
  generator.generate(request, after);
  for (const auto& heard : {before, after}) {
    EXPECT_EQ(heard->wait(), std::nullopt);
    EXPECT_EQ(heard->refusal().kind, Refusal::Kind::kUnavailable);
    EXPECT_EQ(heard->refusal().message, "the end");
  }
}

}  // namespace
}  // namespace atl::serve
