// The whole model's loss and gradient against the same mathematics in FP64 with LibTorch's
// autograd.
#include "atoll/train/loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "atoll/data/pack.h"
#include "atoll/method/train_options.h"
#include "atoll/model/composite.h"
#include "atoll/model/page_tensor.h"
#include "atoll/model/pooled_tensors.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/tokenizer/tokenizer_trainer.h"
#include "atoll/train/evaluate.h"

namespace atl::train {
namespace {

using model::Model;
using model::Purpose;
using weights::ModelConfig;

ModelConfig small_config() {
  return {.vocab_size = 97,
          .hidden_size = 24,
          .intermediate_size = 40,
          .num_layers = 2,
          .num_heads = 4,
          .num_kv_heads = 2,
          .max_positions = 80};
}

at::Tensor tokens(std::vector<int64_t> shape, int64_t vocab) {
  const int64_t count = shape[0] * shape[1];
  return (at::arange(count, at::kLong) * 7919 + 13).remainder(vocab).view(shape);
}

at::Tensor next_tokens(const at::Tensor& inputs_BT) {
  const at::Tensor ignored = at::full({inputs_BT.size(0), 1}, data::kIgnoredTarget, at::kLong);
  return at::cat({inputs_BT.narrow(1, 1, inputs_BT.size(1) - 1), ignored}, 1);
}

/// Parameters far enough from their start that every part of the model matters.
void randomise(Model& model) {
  model.initialise(5);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{11});
  const at::Tensor& values_P = model.parameters().values_P();
  values_P.add_(at::randn(values_P.sizes(), generator, values_P.options()), 0.1);
}

/// A Llama or a Qwen 3 as one would write it down, in FP64.
class Reference {
 public:
  explicit Reference(const Model& model) : config_(model.config()) {
    for (const auto& spec : model.parameters().specs()) {
      leaves_[spec.name] = model.parameters()
                               .view(spec.name)
                               .to(at::kDouble)
                               .detach()
                               .clone()
                               .set_requires_grad(true);
    }
  }

  at::Tensor logits(const at::Tensor& tokens_BT) const {
    at::Tensor x = at::embedding(at("model.embed_tokens"), tokens_BT);
    const model::AttentionShape shape{x.size(0),
                                      x.size(1),
                                      config_.num_heads,
                                      config_.num_kv_heads,
                                      config_.head_size(),
                                      0,
                                      static_cast<float>(config_.score_scale())};
    const auto options = at::TensorOptions().dtype(at::kDouble);
    const at::Tensor frequencies =
        at::pow(config_.rope_theta,
                -at::arange(0, shape.head_size, 2, options) / static_cast<double>(shape.head_size));
    const at::Tensor angles = at::outer(at::arange(shape.positions, options), frequencies);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      const auto weight = [&](const std::string& part) {
        return at("model.layers." + std::to_string(layer) + "." + part);
      };
      const at::Tensor h =
          model::composite::rms_norm(x, weight("input_layernorm"), config_.norm_eps);
      at::Tensor qkv = at::cat(
          {at::linear(h, weight("self_attn.q_proj")), at::linear(h, weight("self_attn.k_proj")),
           at::linear(h, weight("self_attn.v_proj"))},
          2);
      if (config_.architecture == "qwen3") {
        qkv = model::composite::head_norm(shape, qkv, weight("self_attn.q_norm"),
                                          weight("self_attn.k_norm"), config_.norm_eps);
      }
      qkv = model::composite::rotated(shape, qkv, angles.cos(), angles.sin());
      x = x + at::linear(model::composite::attention(shape, qkv), weight("self_attn.o_proj"));
      const at::Tensor m =
          model::composite::rms_norm(x, weight("post_attention_layernorm"), config_.norm_eps);
      x = x + at::linear(at::silu(at::linear(m, weight("mlp.gate_proj"))) *
                             at::linear(m, weight("mlp.up_proj")),
                         weight("mlp.down_proj"));
    }
    x = model::composite::rms_norm(x, at("model.norm"), config_.norm_eps);
    return at::linear(x, at(config_.tie_embeddings ? "model.embed_tokens" : "lm_head"));
  }

  at::Tensor loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT, double z_loss) const {
    const at::Tensor flat = logits(tokens_BT).flatten(0, 1);
    const at::Tensor targets = targets_BT.reshape(-1);
    const at::Tensor counted = flat.logsumexp(1).square().masked_select(targets >= 0);
    return at::cross_entropy_loss(flat, targets) + counted.mean() * z_loss;
  }

  const at::Tensor& at(const std::string& name) const { return leaves_.at(name + ".weight"); }
  const std::map<std::string, at::Tensor>& leaves() const { return leaves_; }

 private:
  ModelConfig config_;
  std::map<std::string, at::Tensor> leaves_;
};

double relative_error(const at::Tensor& found, const at::Tensor& wanted) {
  const at::Tensor difference = found.to(at::kDouble) - wanted.to(at::kDouble);
  return (difference.norm() / (wanted.to(at::kDouble).norm() + 1e-30)).item<double>();
}

void expect_fp64s_gradients(const ModelConfig& config, int64_t rows) {
  Model model(config, at::kCPU, Purpose::kTraining);
  randomise(model);
  const at::Tensor inputs_BT = tokens({rows, 70}, config.vocab_size);
  const at::Tensor targets_BT = next_tokens(inputs_BT);
  const Loss loss = accumulate_gradients(model, inputs_BT, targets_BT, {.z_loss = 0.01});

  const Reference reference(model);
  const at::Tensor wanted = reference.loss(inputs_BT, targets_BT, 0.01);
  wanted.backward();
  EXPECT_NEAR(loss.total.item<double>(), wanted.item<double>(), 1e-5);
  EXPECT_LT(loss.cross_entropy.item<double>(), loss.total.item<double>());
  for (const auto& spec : model.parameters().specs()) {
    const at::Tensor gradient =
        model.parameters().gradients_P().narrow(0, spec.offset, spec.size).view(spec.shape);
    EXPECT_LT(relative_error(gradient, reference.leaves().at(spec.name).grad()), 1e-5) << spec.name;
  }
  const Loss evaluated = evaluate_loss(model, inputs_BT, targets_BT, {.z_loss = 0.01});
  EXPECT_NEAR(evaluated.total.item<double>(), wanted.item<double>(), 1e-5);
}

class GradientTest : public testing::TestWithParam<std::pair<bool, bool>> {};

TEST_P(GradientTest, LossAndEveryGradientEqualFp64) {
  ModelConfig config = small_config();
  config.tie_embeddings = GetParam().first;
  if (GetParam().second) config.architecture = "qwen3";
  expect_fp64s_gradients(config, 3);
}

INSTANTIATE_TEST_SUITE_P(Families, GradientTest,
                         testing::Values(std::pair(true, false), std::pair(false, false),
                                         std::pair(true, true), std::pair(false, true)));

/// Against LibTorch's own divergence, in FP64, from another model with another head.
TEST(TeacherTest, LossAndGradientAreThoseOfTheDefinition) {
  // The second in two slices.
  for (const auto& [cap, vocab, rows] : {std::tuple{0.0, 97, 1}, {3.0, 8192, 9}}) {
    ModelConfig config = small_config();
    config.vocab_size = vocab;
    if (cap > 0) config.architecture = "gemma2";
    config.logits_softcap = cap;
    Model model(config, at::kCPU, Purpose::kTraining);
    randomise(model);
    ModelConfig larger = small_config();
    larger.vocab_size = vocab;
    larger.hidden_size = 32;
    larger.num_layers = 3;
    Model teacher(larger, at::kCPU, Purpose::kInference);
    teacher.initialise(8);
    teacher.parameters().values_P().mul_(4);
    const at::Tensor inputs_BT = tokens({rows, 60}, vocab);
    const at::Tensor targets_BT = next_tokens(inputs_BT);
    const Loss loss = accumulate_gradients(
        model, inputs_BT, targets_BT,
        {.z_loss = 0.01, .scale = 0.5, .teacher = &teacher, .teacher_share = 0.7});
    const at::Tensor found_P = model.parameters().gradients_P().clone();

    // The loss as a function of the logits, whose gradient then goes through the model as that of
    // any loss does: here of the hidden states, with the graph of the model itself.
    model.parameters().gradients_P().zero_();
    const at::Tensor counts_M = (targets_BT >= 0).view(-1);
    at::Tensor hidden_BTC;
    {
      const at::AutoGradMode with_graph(true);
      hidden_BTC = model.hidden_BTC(inputs_BT);
    }
    const at::Tensor head_VC =
        model.head_VC().value.detach().to(at::kDouble).clone().set_requires_grad(true);
    const at::Tensor leaf_MC =
        hidden_BTC.detach().view({-1, 24}).to(at::kDouble).clone().set_requires_grad(true);
    at::Tensor wanted_MV;
    {
      const at::NoGradGuard no_grad;
      wanted_MV = at::softmax(teacher.logits(teacher.hidden_BTC(inputs_BT)).to(at::kDouble), 2)
                      .view({-1, vocab});
    }
    const at::AutoGradMode with_graph(true);
    at::Tensor logits_MV = leaf_MC.matmul(head_VC.t());
    if (cap > 0) logits_MV = (logits_MV / cap).tanh() * cap;
    const at::Tensor log_probabilities = at::log_softmax(logits_MV, 1);
    const at::Tensor divergence = at::kl_div(log_probabilities, wanted_MV, at::Reduction::None)
                                      .sum(1)
                                      .masked_select(counts_M)
                                      .mean();
    const at::Tensor cross_entropy =
        at::nll_loss(log_probabilities, targets_BT.view(-1), {}, at::Reduction::Mean, -100);
    const at::Tensor square = at::logsumexp(logits_MV, {1}).square().masked_select(counts_M).mean();
    const at::Tensor total = 0.7 * divergence + 0.3 * cross_entropy + 0.01 * square;
    EXPECT_NEAR(loss.divergence.item<double>(), divergence.item<double>(), 1e-4);
    EXPECT_NEAR(loss.cross_entropy.item<double>(), cross_entropy.item<double>(), 1e-4);
    EXPECT_NEAR(loss.total.item<double>(), total.item<double>(), 1e-4);
    (0.5 * total).backward();
    hidden_BTC.backward(leaf_MC.grad().to(at::kFloat).view(hidden_BTC.sizes()));
    model.head_VC().grad.add_(head_VC.grad().to(at::kFloat));
    EXPECT_LT(relative_error(found_P, model.parameters().gradients_P()), 1e-4) << cap;
  }
}

TEST(TeacherTest, WhoIsItsOwnTeacherHasNothingToLearn) {
  Model model(small_config(), at::kCPU, Purpose::kTraining);
  randomise(model);
  Model teacher(small_config(), at::kCPU, Purpose::kInference);
  randomise(teacher);
  const at::Tensor inputs_BT = tokens({2, 20}, 97);
  const Loss loss = accumulate_gradients(model, inputs_BT, next_tokens(inputs_BT),
                                         {.teacher = &teacher, .teacher_share = 1});
  EXPECT_NEAR(loss.total.item<double>(), 0, 1e-6);
  EXPECT_LT(model.parameters().gradients_P().abs().max().item<double>(), 1e-6);
}

TEST(LossTest, SlicesAddUpToFp64s) {
  ModelConfig config = small_config();
  config.vocab_size = 8192;
  ASSERT_LT(method::loss_slice(config.vocab_size, /*is_on_cpu=*/true), 8 * 70);
  expect_fp64s_gradients(config, 8);
}

TEST(LossTest, MicroBatchesAddUpToTheWholeBatch) {
  Model whole(small_config(), at::kCPU, Purpose::kTraining);
  Model parts(small_config(), at::kCPU, Purpose::kTraining);
  randomise(whole);
  randomise(parts);
  const at::Tensor inputs_BT = tokens({4, 16}, 97);
  const at::Tensor targets_BT = next_tokens(inputs_BT);
  accumulate_gradients(whole, inputs_BT, targets_BT, {.z_loss = 0.001});
  for (int64_t row = 0; row < 4; ++row) {
    accumulate_gradients(parts, inputs_BT.narrow(0, row, 1), targets_BT.narrow(0, row, 1),
                         {.z_loss = 0.001, .scale = 0.25});
  }
  EXPECT_LT(relative_error(parts.parameters().gradients_P(), whole.parameters().gradients_P()),
            1e-5);
}

TEST(LossTest, TwoRunsGiveTheSameBits) {
  const auto gradients = [] {
    Model model(small_config(), at::kCPU, Purpose::kTraining);
    randomise(model);
    const at::Tensor inputs_BT = tokens({8, 64}, 97);
    accumulate_gradients(model, inputs_BT, next_tokens(inputs_BT), {});
    return model.parameters().gradients_P();
  };
  EXPECT_TRUE(at::equal(gradients(), gradients()));
}

TEST(LossTest, GradientsThatWereForgottenAreThoseThatWereZero) {
  ModelConfig config = small_config();
  config.hidden_size = 512;
  config.intermediate_size = 2048;
  config.vocab_size = 1024;
  for (const bool is_tied : {false, true}) {
    config.tie_embeddings = is_tied;
    Model model(config, at::kCPU, Purpose::kTraining);
    randomise(model);
    const at::Tensor inputs_BT = tokens({2, 16}, config.vocab_size);
    const at::Tensor& gradients_P = model.parameters().gradients_P();
    const auto twice = [&] {  // The second adds to the first.
      for (int i = 0; i < 2; ++i)
        accumulate_gradients(model, inputs_BT, next_tokens(inputs_BT), {});
      return gradients_P.clone();
    };
    gradients_P.zero_();
    const at::Tensor wanted_P = twice();
    model::forget(gradients_P);
    {  // Pages that are not zero.
      constexpr size_t kSize = size_t{64} << 20;
      BufferPool::Block* const block = model::tensor_pool().take(kSize);
      std::memset(block->data(), 0xff, kSize);
      model::tensor_pool().give_back(block);
    }
    EXPECT_TRUE(twice().equal(wanted_P));
  }
}

TEST(LossTest, IgnoredTargetsTrainNothing) {
  Model model(small_config(), at::kCPU, Purpose::kTraining);
  randomise(model);
  const at::Tensor inputs_BT = tokens({2, 8}, 97);
  const Loss loss = accumulate_gradients(
      model, inputs_BT, at::full_like(inputs_BT, data::kIgnoredTarget), {.z_loss = 1});
  EXPECT_EQ(loss.total.item<double>(), 0);
  EXPECT_EQ(model.parameters().gradients_P().abs().max().item<double>(), 0);
}

TEST(LossTest, RefusesTokensOverTheVocabularyAndLongRows) {
  const Model model(small_config(), at::kCPU, Purpose::kInference);
  EXPECT_THROW(model.hidden_BTC(at::full({1, 4}, 97, at::kLong)), InputError);
  EXPECT_THROW(model.hidden_BTC(at::full({1, 4}, -1, at::kLong)), InputError);
  EXPECT_THROW(model.hidden_BTC(at::zeros({1, 81}, at::kLong)), InputError);
}

TEST(LlamaTest, InitialisationIsAFunctionOfSeedAndName) {
  Model a(small_config(), at::kCPU, Purpose::kInference);
  a.initialise(3);
  ModelConfig deeper = small_config();
  deeper.num_kv_heads = 4;  // Other shapes elsewhere leave this tensor's stream alone.
  Model b(deeper, at::kCPU, Purpose::kInference);
  b.initialise(3);
  const char* name = "model.layers.1.mlp.gate_proj.weight";
  EXPECT_TRUE(at::equal(a.parameters().view(name), b.parameters().view(name)));
  EXPECT_NEAR(a.parameters().view(name).std().item<double>(), 0.02, 0.002);
  EXPECT_NEAR(a.parameters().view("model.layers.0.mlp.down_proj.weight").std().item<double>(), 0.01,
              0.001);
  EXPECT_TRUE(at::equal(a.parameters().view("model.norm.weight"), at::ones({24})));
  // Frozen: other bits would make old seeds other models.
  EXPECT_FLOAT_EQ(a.parameters().view("model.embed_tokens.weight")[0][0].item<float>(),
                  0.05567202F);
  a.initialise(4);
  EXPECT_FALSE(at::equal(a.parameters().view(name), b.parameters().view(name)));
}

TEST(EvaluateTest, ScoresEqualLogSoftmaxAlsoAcrossWindows) {
  ModelConfig config = small_config();
  Model model(config, at::kCPU, Purpose::kInference);
  randomise(model);
  const at::Tensor text = tokens({1, 60}, config.vocab_size);
  const std::span<const int64_t> ids(text.const_data_ptr<int64_t>(), 60);
  const at::Tensor log_probabilities =
      at::log_softmax(Reference(model).logits(text)[0].detach(), 1);
  const auto scores = score_tokens(model, ids, 80, 40, {});
  ASSERT_EQ(scores.size(), 60U);
  EXPECT_FALSE(scores[0].has_value());
  for (int64_t i = 1; i < 60; ++i) {
    const at::Tensor row = log_probabilities[i - 1];
    EXPECT_NEAR(scores[i]->log_probability, row[ids[i]].item<double>(), 1e-5);
    EXPECT_EQ(scores[i]->rank, 1 + (row > row[ids[i]]).sum().item<int64_t>());
  }
  // Windows of 20 that begin every 10: the token at 25 is scored in the window [10, 30).
  const auto windowed = score_tokens(model, ids, 20, 10, {});
  EXPECT_NEAR(windowed[19]->log_probability, scores[19]->log_probability, 1e-5);
  const at::Tensor window =
      at::log_softmax(Reference(model).logits(text.narrow(1, 10, 20))[0].detach(), 1);
  EXPECT_NEAR(windowed[25]->log_probability, window[14][ids[25]].item<double>(), 1e-5);
  EXPECT_NE(windowed[25]->log_probability, scores[25]->log_probability);
}

TEST(EvaluateTest, TargetsMayComeInAnyOrderAndShareRows) {
  const ModelConfig config = small_config();
  Model model(config, at::kCPU, Purpose::kInference);
  randomise(model);
  const at::Tensor text = tokens({2, 75}, config.vocab_size);
  const at::Tensor hidden_TC = model.hidden_BTC(text).flatten(0, 1);
  const at::Tensor log_probabilities = at::log_softmax(model.logits(hidden_TC), 1);
  std::vector<model::RowTarget> targets;
  for (int64_t i = 0; i < 400; ++i) targets.push_back({149 - i * i % 150, i % config.vocab_size});
  const auto scores = score_targets(model, hidden_TC, targets);
  ASSERT_EQ(scores.size(), targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    const at::Tensor row = log_probabilities[targets[i].row];
    EXPECT_NEAR(scores[i].log_probability, row[targets[i].id].item<double>(), 1e-5);
    EXPECT_EQ(scores[i].rank, 1 + (row > row[targets[i].id]).sum().item<int64_t>());
  }
}

TEST(EvaluateTest, MeanLossIsTheMeanOverAllPredictionsOfTheRows) {
  namespace fs = std::filesystem;
  const TestFolder folder;
  tokenizer::WordCounts words;
  words.add("the cat sat on the mat, the cat sat on the hat");
  const std::string json = tokenizer::train_tokenizer(
      words, {.vocab_size = 280, .min_frequency = 2}, [](const auto&) {});
  const auto tokenizer = tokenizer::Tokenizer::from_json(json, "test");
  folder.write("tokenizer.json", json);
  for (int i = 10; i < 60; ++i) {
    folder.write(fmt::format("tree/{}.txt", i), fmt::format("the cat sat on {}", i));
  }
  const data::Corpus corpus({.inputs = {(folder / "tree").string()}});
  data::pack(corpus, tokenizer, folder / "store", {.validation_share = 0.5}, [](const auto&) {});
  const auto store = data::TokenStore::open(folder / "store");
  const data::Batches rows(store, data::Split::kValidation,
                           {.sequence_length = 12, .batch_rows = 1});
  ASSERT_GE(rows.num_rows(), 5);

  ModelConfig config = small_config();
  config.vocab_size = tokenizer.vocab_size();
  Model model(config, at::kCPU, Purpose::kInference);
  randomise(model);
  double total = 0;
  for (int64_t row = 0; row < 5; ++row) {
    std::vector<int64_t> ids(12);
    store.read(data::Split::kValidation, row * rows.num_rows() / 5 * 12, ids);  // Spread evenly.
    for (const auto& score : score_tokens(model, ids, 12, 6, {})) {
      total -= score ? score->log_probability : 0;
    }
  }
  // Batches of 2, 2 and 1 rows.
  EXPECT_NEAR(mean_loss(model, rows, 12, 5, 2), total / (5 * 11), 1e-5);
}

}  // namespace
}  // namespace atl::train
