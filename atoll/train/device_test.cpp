// Training, scoring on a device beside the same on the CPU: on a stand-in for a GPU, and on a GPU
// where there is one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "atoll/data/batches.h"
#include "atoll/model/model.h"
#include "atoll/testing_torch/stand_in_device.h"
#include "atoll/train/evaluate.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/train/loss.h"

namespace atl::train {
namespace {

constexpr double kTolerance = 1e-4;  // Of FP32 sums in another order.

struct Family {
  std::string architecture;
  bool tie_embeddings;
  int64_t num_kv_heads;
  int64_t sliding_window = 0;
};
const std::vector<Family> kFamilies = {
    {"llama", true, 2},     {"qwen3", false, 4}, {"qwen2", true, 2, 9}, {"olmo2", false, 2},
    {"gpt_neox", false, 4}, {"gpt2", true, 4},   {"gemma2", true, 2, 9}};

model::Model make_model(const Family& family, at::Device device) {
  model::Model model({.architecture = family.architecture,
                      .vocab_size = 97,
                      .hidden_size = 24,
                      .intermediate_size = 40,
                      .num_layers = 2,
                      .num_heads = 4,
                      .num_kv_heads = family.num_kv_heads,
                      .max_positions = 80,
                      .sliding_window = family.sliding_window,
                      .tie_embeddings = family.tie_embeddings},
                     device, model::Purpose::kTraining);
  model.initialise(5);
  return model;
}

at::Tensor tokens_BT() {
  return (at::arange(3 * 70, at::kLong) * 7919 + 13).remainder(97).view({3, 70});
}

at::Tensor targets_BT() {
  const at::Tensor ignored = at::full({3, 1}, data::kIgnoredTarget, at::kLong);
  return at::cat({tokens_BT().narrow(1, 1, 69), ignored}, 1);
}

void expect_near(const at::Tensor& found, const at::Tensor& wanted, const char* what) {
  const at::Tensor difference = found.cpu().to(at::kDouble) - wanted.to(at::kDouble);
  EXPECT_LT(difference.norm().item<double>(), kTolerance * wanted.norm().item<double>()) << what;
}

struct Trained {
  double loss = 0;
  double norm = 0;  // Of the gradient.
  at::Tensor gradients_P;
  at::Tensor values_P;
};

/// Two steps, as the training loop makes them. Gradients are those of the second.
Trained train(const Family& family, const method::TrainOptions& options, at::Device device) {
  model::Model model = make_model(family, device);
  const at::Tensor gradients_P = model.parameters().gradients_P();
  const auto optimizer = make_inner_optimizer(options, target_of(model.parameters()));
  Trained trained;
  for (int step = 0; step < 2; ++step) {
    trained.loss = accumulate_gradients(model, tokens_BT().to(device), targets_BT().to(device),
                                        {.z_loss = 0.01})
                       .total.item<double>();
    trained.norm = gradient_norm(gradients_P);
    trained.gradients_P = gradients_P.cpu().clone();
    optimizer->step({.lr = 0.01,
                     .weight_decay = 0.1,
                     .gradient_scale = clip_factor(trained.norm, /*max_norm=*/0.5)});
    EXPECT_EQ(gradients_P.cpu().count_nonzero().item<int64_t>(), 0);
  }
  trained.values_P = model.parameters().values_P().cpu();
  return trained;
}

void expect_the_steps_of_the_cpu(at::Device device) {
  for (const Family& family : kFamilies) {
    for (const char* optimizer : {"adamw", "muon", "sgd"}) {
      SCOPED_TRACE(optimizer);
      const method::TrainOptions options{.optimizer = optimizer};
      const Trained wanted = train(family, options, at::kCPU);
      const Trained found = train(family, options, device);
      EXPECT_NEAR(found.loss, wanted.loss, kTolerance * wanted.loss);
      EXPECT_NEAR(found.norm, wanted.norm, kTolerance * wanted.norm);
      expect_near(found.gradients_P, wanted.gradients_P, "gradients");
      expect_near(found.values_P, wanted.values_P, "values");
    }
  }
}

void expect_the_scores_of_the_cpu(at::Device device) {
  const at::Tensor text_BT = tokens_BT();
  const std::span<const int64_t> ids(text_BT.const_data_ptr<int64_t>(), 70);
  for (const Family& family : kFamilies) {
    const auto wanted = score_tokens(make_model(family, at::kCPU), ids, 40, 20, {});
    const auto found = score_tokens(make_model(family, device), ids, 40, 20, {});
    for (size_t i = 1; i < ids.size(); ++i) {
      EXPECT_NEAR(found[i]->log_probability, wanted[i]->log_probability, kTolerance) << i;
    }
  }
}

TEST(DeviceTest, MakesTheStepsOfTheCpu) {
  expect_the_steps_of_the_cpu(model::stand_in::a_device());
}

TEST(DeviceTest, GivesTheScoresOfTheCpu) {
  expect_the_scores_of_the_cpu(model::stand_in::a_device());
}

TEST(DeviceDeathTest, AStandInAndTheHostShareNothing) {
  if (!model::stand_in::kIsRegistered) GTEST_SKIP() << "a GPU is there";
  const at::Tensor x = at::ones({3}, at::TensorOptions(model::stand_in::device()));
  EXPECT_EQ(x.sum().item<float>(), 3);
  EXPECT_ANY_THROW(x.add(at::ones({3})));
  EXPECT_ANY_THROW(x.index_select(0, at::ones({1}, at::kLong)));
  EXPECT_ANY_THROW(at::cat({x, at::ones({3})}));
  EXPECT_DEATH(static_cast<void>(*static_cast<const volatile float*>(x.const_data_ptr())), "");
}

}  // namespace
}  // namespace atl::train
