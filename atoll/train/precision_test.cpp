// Training in BF16 beside the same in FP32, and activation checkpointing beside none, for all kinds
// of layers that the decoder has.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "atoll/data/batches.h"
#include "atoll/model/model.h"
#include "atoll/model/watched_attention.h"
#include "atoll/train/learner.h"

namespace atl::train {
namespace {

using weights::ModelConfig;

ModelConfig small(const std::string& architecture) {
  return {.architecture = architecture,
          .vocab_size = 97,
          .hidden_size = 32,
          .intermediate_size = 48,
          .num_layers = 3,
          .num_heads = 4,
          .num_kv_heads = 4,
          .max_positions = 80};
}

std::vector<ModelConfig> families() {
  std::vector<ModelConfig> all;
  for (const char* architecture : {"llama", "qwen3", "qwen2", "olmo2", "gpt_neox", "gpt2"}) {
    all.push_back(small(architecture));
  }
  all.front().num_kv_heads = 2;
  all.back().activation = "gelu_tanh";
  ModelConfig capped = small("gemma2");
  capped.layer_pattern = "sf";
  capped.sliding_window = 9;
  capped.attention_softcap = 20;
  capped.logits_softcap = 10;
  all.push_back(capped);
  ModelConfig experts = small("mixtral");
  experts.num_experts = 4;
  experts.experts_per_token = 2;
  experts.router_aux_loss = 0.02;
  all.push_back(experts);
  return all;
}

Batch batch() {
  const at::Tensor inputs = (at::arange(3 * 70, at::kLong) * 7919 + 13).remainder(97).view({3, 70});
  const at::Tensor ignored = at::full({3, 1}, data::kIgnoredTarget, at::kLong);
  return {inputs, at::cat({inputs.narrow(1, 1, 69), ignored}, 1)};
}

struct Learned {
  double loss = 0;
  at::Tensor gradients_P;
};

Learned learn(const ModelConfig& config, const method::TrainOptions& options) {
  at::set_num_threads(1);  // Of products this small threads only wait for each other.
  model::Model model(config, at::kCPU, purpose_of(options));
  model.set_activation_checkpointing(options.activation_checkpointing);
  model.initialise(5);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{11});
  const at::Tensor& values_P = model.parameters().values_P();
  values_P.add_(at::randn(values_P.sizes(), generator, values_P.options()), 0.05);
  ModelLearner learner(model, {.z_loss = 1e-4});
  const std::vector<Batch> batches{batch(), batch()};
  Learned learned{.loss = learner.add_gradients(batches, 1), .gradients_P = {}};
  learned.gradients_P = model.parameters().gradients_P().clone();
  return learned;
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).norm() / b.norm()).item<double>();
}

TEST(PrecisionTest, Bf16FindsTheGradientsOfFp32) {
  for (const ModelConfig& config : families()) {
    SCOPED_TRACE(config.architecture);
    const Learned wanted = learn(config, {});
    const Learned found = learn(config, {.precision = "bf16"});
    EXPECT_NEAR(found.loss, wanted.loss, 3e-3 * wanted.loss);
    // Where experts are nearly as good as each other, rounding chooses.
    EXPECT_LT(distance(found.gradients_P, wanted.gradients_P), config.num_experts > 0 ? 0.2 : 0.03);
    EXPECT_GT(distance(found.gradients_P, wanted.gradients_P), 1e-5) << "it was not in BF16";
    EXPECT_EQ(found.gradients_P.scalar_type(), at::kFloat);
  }
}

TEST(PrecisionTest, ActivationCheckpointingGivesTheSameBits) {
  int64_t visits = 0;
  const model::WatchedAttention watch([&](int64_t /*layer*/, const at::Tensor& qkv_BTF) {
    ++visits;
    return qkv_BTF;
  });
  for (const ModelConfig& config : families()) {
    for (const char* precision : {"fp32", "bf16"}) {
      SCOPED_TRACE(config.architecture + " " + precision);
      visits = 0;
      const Learned wanted = learn(config, {.precision = precision});
      EXPECT_EQ(visits, 2 * config.num_layers);  // Of two batches.
      const Learned found =
          learn(config, {.precision = precision, .activation_checkpointing = true});
      EXPECT_EQ(visits, 6 * config.num_layers) << "layers were not computed again";
      EXPECT_EQ(found.loss, wanted.loss);
      EXPECT_TRUE(at::equal(found.gradients_P, wanted.gradients_P));
    }
  }
}

TEST(PrecisionTest, TheRoundedCopyFollowsTheParameters) {
  model::Model model(small("llama"), at::kCPU, model::Purpose::kBf16Training);
  model.initialise(5);
  ModelLearner learner(model, {});
  const double before = learner.cross_entropy(batch());
  model.parameters().values_P().zero_();
  EXPECT_NE(learner.cross_entropy(batch()), before);
  EXPECT_NEAR(learner.cross_entropy(batch()), std::log(97.0), 1e-5);
}

}  // namespace
}  // namespace atl::train
