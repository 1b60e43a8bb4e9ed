// Generation with the cache against the whole sequence read anew for every token.
#include "atoll/serve/generate.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/testing_torch/stand_in_device.h"
#include "atoll/weights/families.h"

namespace atl::serve {
namespace {

model::Model small_model(const std::string& architecture = "llama", at::Device device = at::kCPU) {
  const weights::Family& family = *weights::find_family(architecture);
  const bool turns_partly = family.has("partial_rotary_factor");
  const bool has_pattern = family.has("layer_pattern");
  const bool has_window = family.has("sliding_window");
  model::Model model({.architecture = architecture,
                      .vocab_size = 61,
                      .hidden_size = 24,
                      .intermediate_size = 40,
                      .num_layers = 3,
                      .num_heads = 4,
                      .num_kv_heads = family.has("num_kv_heads") ? 2 : 4,
                      .max_positions = 48,
                      .partial_rotary_factor = turns_partly ? 0.4 : 1,
                      .sliding_window = has_window ? 4 : 0,
                      .full_layers = architecture == "qwen2" ? 1 : 0,
                      .layer_pattern = !has_pattern ? ""
                                       : has_window ? "sf"
                                                    : "fn",
                      .tie_embeddings = false,
                      .attention_bias = turns_partly && family.has("attention_bias"),
                      .num_experts = family.has("num_experts") ? 5 : 0},
                     device, model::Purpose::kInference);
  model.initialise(5);
  at::set_num_threads(1);                 // So small that threads only wait for each other.
  model.parameters().values_P().mul_(8);  // Logits that differ clearly.
  return model;
}

at::Tensor as_tensor(std::span<const int64_t> ids) {
  return at::tensor(at::ArrayRef<int64_t>(ids.data(), ids.size()), at::kLong).unsqueeze(0);
}

at::Tensor full_logits_TV(const model::Model& model, std::span<const int64_t> ids) {
  return model.logits(model.hidden_BTC(as_tensor(ids)))[0];
}

const std::vector<int64_t> kPrompt{3, 14, 15, 9, 26, 5, 35};

Generation generate_one(const model::Model& model, const std::vector<int64_t>& prompt,
                        const GenerateOptions& options, const Hearing& hearing) {
  const std::vector<std::vector<int64_t>> prompts{prompt};
  return generate(model, prompts, options, hearing).at(0);
}

TEST(GenerateTest, CachedReadingEqualsReadingAnewHoweverItIsCut) {
  for (const weights::Family& family : weights::families()) {
    SCOPED_TRACE(family.name);
    const model::Model model = small_model(std::string(family.name));
    const at::Tensor wanted_TV = full_logits_TV(model, kPrompt);
    for (const std::vector<int64_t>& cuts :
         std::vector<std::vector<int64_t>>{{7}, {1, 1, 1, 1, 1, 1, 1}, {3, 4}, {4, 1, 2}}) {
      model::KvCache cache(model.config(), at::kCPU);
      int64_t begin = 0;
      for (const int64_t count : cuts) {
        const at::Tensor hidden =
            model.hidden_BTC(as_tensor(std::span(kPrompt).subspan(begin, count)), cache);
        const at::Tensor wanted = wanted_TV.narrow(0, begin, count);
        const double error = (model.logits(hidden)[0] - wanted).abs().max().item<double>();
        EXPECT_LT(error, 1e-4 * wanted.abs().max().item<double>()) << begin;
        begin += count;
      }
      EXPECT_EQ(cache.length(), 7);
    }
  }
}

TEST(GenerateTest, OnADeviceTheSameTokensAsOnTheCpu) {
  const GenerateOptions greedy{.max_tokens = 20, .sampler = {.temperature = 0}};
  const Generation wanted = generate_one(small_model("qwen3"), kPrompt, greedy, {});
  const model::Model model = small_model("qwen3", model::stand_in::a_device());
  EXPECT_EQ(generate_one(model, kPrompt, greedy, {}).ids, wanted.ids);
}

TEST(GenerateTest, TruncatingTheCacheTakesTokensBack) {
  const model::Model model = small_model();
  model::KvCache cache(model.config(), at::kCPU);
  model.hidden_BTC(as_tensor(kPrompt), cache);
  const at::Tensor first = model.hidden_BTC(as_tensor(std::vector<int64_t>{1}), cache);
  model.hidden_BTC(as_tensor(std::vector<int64_t>{2, 4}), cache);
  cache.truncate(7);
  EXPECT_TRUE(at::equal(first, model.hidden_BTC(as_tensor(std::vector<int64_t>{1}), cache)));
}

TEST(GenerateTest, GreedyEqualsFullRecomputation) {
  const model::Model model = small_model();
  std::vector<int64_t> seen;
  const auto token = [&](size_t /*row*/, int64_t id) {
    seen.push_back(id);
    return true;
  };
  const Generation found =
      generate_one(model, kPrompt, {.max_tokens = 20, .sampler = {.temperature = 0}},
                   {.token = token, .ended = {}});
  EXPECT_EQ(seen, found.ids);
  EXPECT_EQ(found.reason, FinishReason::kLength);
  std::vector<int64_t> text = kPrompt;
  for (const int64_t id : found.ids) {
    EXPECT_EQ(full_logits_TV(model, text)[-1].argmax().item<int64_t>(), id) << text.size();
    text.push_back(id);
  }
}

TEST(GenerateTest, EndsAtEndOfTextAndAtTheContextsEnd) {
  const model::Model model = small_model();
  const GenerateOptions greedy{.max_tokens = 1000, .sampler = {.temperature = 0}};
  const Generation whole = generate_one(model, kPrompt, greedy, {});
  EXPECT_EQ(whole.ids.size(), 48 - kPrompt.size());
  EXPECT_EQ(whole.reason, FinishReason::kLength);

  GenerateOptions stopping = greedy;
  stopping.ends = {-1, whole.ids[4]};
  const Generation stopped = generate_one(model, kPrompt, stopping, {});
  EXPECT_EQ(stopped.reason, FinishReason::kStop);
  EXPECT_LE(stopped.ids.size(), 4U);
  EXPECT_EQ(std::ranges::count(stopped.ids, whole.ids[4]), 0);
}

TEST(GenerateTest, EqualSeedsGiveEqualTextAndOthersOther) {
  const model::Model model = small_model();
  const auto ids = [&](uint64_t seed) {
    return generate_one(model, kPrompt,
                        {.max_tokens = 30, .sampler = {.temperature = 5, .seed = seed}}, {})
        .ids;
  };
  EXPECT_EQ(ids(1), ids(1));
  EXPECT_NE(ids(1), ids(2));
}

TEST(GenerateTest, RowsOfABatchGiveWhatTheyGiveAlone) {
  const std::vector<std::vector<int64_t>> prompts = {
      kPrompt, {8}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}, {40, 41}};
  for (const weights::Family& family : weights::families()) {
    SCOPED_TRACE(family.name);
    const model::Model model = small_model(std::string(family.name));
    GenerateOptions options{.max_tokens = 20,
                            .sampler = {.temperature = 0, .repetition_penalty = 1.2}};
    options.ends = {generate_one(model, prompts[1], options, {}).ids[5]};  // One ends early.
    const auto found = generate(model, prompts, options, {});
    for (size_t row = 0; row < prompts.size(); ++row) {
      const Generation alone = generate_one(model, prompts[row], options, {});
      EXPECT_EQ(found[row].ids, alone.ids) << row;
      EXPECT_EQ(found[row].reason, alone.reason) << row;
    }
  }
}

TEST(GenerateTest, ARowDrawsAsAloneWithItsSeed) {
  const model::Model model = small_model();
  GenerateOptions options{.max_tokens = 12, .sampler = {.temperature = 3, .seed = 5}};
  const auto found = generate(model, std::vector{kPrompt, kPrompt}, options, {});
  options.sampler.seed = 6;
  EXPECT_EQ(found[1].ids, generate_one(model, kPrompt, options, {}).ids);
  EXPECT_NE(found[0].ids, found[1].ids);
}

TEST(GenerateTest, GoesOnBehindWhatTheEngineHasRead) {
  const model::Model model = small_model("qwen2");
  const GenerateOptions greedy{.max_tokens = 6, .sampler = {.temperature = 0}};
  const std::vector<int64_t> lengths{48};
  Engine engine(model, engine_options(model, lengths, 16));
  std::vector<std::vector<int64_t>> prompts{kPrompt};
  const Generation first = generate(engine, prompts, greedy, {})[0];
  EXPECT_EQ(first.num_cached, 0);
  prompts[0].insert(prompts[0].end(), first.ids.begin(), first.ids.end());
  const int64_t num_read = std::ssize(prompts[0]) - 1;
  prompts[0].insert(prompts[0].end(), {7, 8, 9});
  const Generation next = generate(engine, prompts, greedy, {})[0];
  EXPECT_EQ(next.num_cached, num_read);
  EXPECT_EQ(next.ids, generate_one(model, prompts[0], greedy, {}).ids);
  // Another one that begins as it did.
  prompts[0][9] = (prompts[0][9] + 1) % 61;
  const Generation other = generate(engine, prompts, greedy, {})[0];
  EXPECT_EQ(other.num_cached, 9);
  EXPECT_EQ(other.ids, generate_one(model, prompts[0], greedy, {}).ids);
  engine.purge(0);
  EXPECT_EQ(generate(engine, prompts, greedy, {})[0].num_cached, 0);
}

TEST(GenerateTest, GuessesChangeNoTokenOfAnyFamily) {
  for (const weights::Family& family : weights::families()) {
    SCOPED_TRACE(family.name);
    const model::Model model = small_model(std::string(family.name));
    for (const double temperature : {0.0, 1.0}) {
      // It says again and again what it has said before.
      const std::vector<int64_t> prompt{3, 14, 15, 9, 26, 3, 14, 15, 9, 26, 3, 14};
      GenerateOptions options{.max_tokens = 40, .sampler = {.temperature = temperature}};
      options.sampler.repetition_penalty = temperature == 0 ? 1 : 1.1;
      const Generation guessed = generate_one(model, prompt, options, {});
      options.max_guesses = 0;
      EXPECT_EQ(guessed.ids, generate_one(model, prompt, options, {}).ids) << temperature;
    }
  }
}

TEST(GenerateTest, MorePromptsThanGoAtOnceAreEachAnsweredAsAlone) {
  const model::Model model = small_model();
  std::vector<std::vector<int64_t>> prompts;
  for (int64_t i = 0; i < 70; ++i) prompts.push_back({i % 61, i * 7 % 61, 5});
  GenerateOptions options{.max_tokens = 9, .sampler = {.temperature = 2, .seed = 3}};
  options.ends = {4, 8, 15};  // They end at different times.
  std::vector<int> num_ended(prompts.size());
  const auto found = generate(model, prompts, options,
                              {.token = {}, .ended = [&](size_t row) { num_ended.at(row) += 1; }});
  EXPECT_EQ(std::ranges::count(num_ended, 1), 70);
  for (size_t row = 0; row < prompts.size(); ++row) {
    EXPECT_EQ(found[row].ids, generate_one(model, prompts[row], options, {}).ids) << row;
    options.sampler.seed += 1;
  }
}

TEST(GenerateTest, OnTokenEndsARow) {
  const model::Model model = small_model();
  const auto token = [count = 0](size_t row, int64_t /*id*/) mutable {
    return row == 1 || ++count < 3;
  };
  const auto found =
      generate(model, std::vector{kPrompt, kPrompt},
               {.max_tokens = 9, .sampler = {.temperature = 0}}, {.token = token, .ended = {}});
  EXPECT_EQ(found[0].ids.size(), 3U);
  EXPECT_EQ(found[0].reason, FinishReason::kStop);
  EXPECT_EQ(found[1].ids.size(), 9U);
}

TEST(GenerateTest, RefusesPromptsThatCannotBeContinued) {
  const model::Model model = small_model();
  EXPECT_THROW(generate_one(model, {}, {}, {}), InputError);
  EXPECT_THROW(generate_one(model, std::vector<int64_t>(48, 1), {}, {}), InputError);
  EXPECT_THROW(generate_one(model, std::vector<int64_t>{61}, {}, {}), InputError);
  EXPECT_THROW(generate_one(model, kPrompt, {.sampler = {.top_p = 2}}, {}), UsageError);
}

}  // namespace
}  // namespace atl::serve
