#include "atoll/plan/step_work.h"

#include <gtest/gtest.h>

namespace atl::plan {
namespace {

weights::ModelConfig small() {
  return {.vocab_size = 100,
          .hidden_size = 16,
          .intermediate_size = 24,
          .num_layers = 3,
          .num_heads = 4,
          .num_kv_heads = 2};
}

TEST(StepWork, MatricesAreCountedAndNothingElse) {
  weights::ModelConfig model = small();
  // Queries and attention's output, keys and values, gate, up and down.
  const double layer = 2.0 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 24;
  EXPECT_DOUBLE_EQ(multiplied_parameters(model), 3 * layer + 16 * 100);
  model.tie_embeddings = false;  // The head is multiplied, the embedding looked up.
  EXPECT_DOUBLE_EQ(multiplied_parameters(model), 3 * layer + 16 * 100);
}

TEST(StepWork, ATokenVisitsItsExpertsAlone) {
  weights::ModelConfig model = small();
  model.architecture = "mixtral";
  model.num_experts = 8;
  model.experts_per_token = 2;
  const double layer = 2.0 * 16 * 16 + 2 * 16 * 8 + 16 * 8 + 2 * 3 * 16 * 24;
  EXPECT_DOUBLE_EQ(multiplied_parameters(model), 3 * layer + 16 * 100);
}

/// Of each query each key, one by one.
double attention_operations(const weights::ModelConfig& model, int64_t length) {
  double operations = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const int64_t window = model.window_of(layer);
    for (int64_t query = 0; query < length; ++query) {
      for (int64_t key = 0; key <= query; ++key) {
        if (window != 0 && query - key >= window) continue;
        // A product with the key and one with the value, forwards once and backwards twice.
        operations += 2.0 * 2 * 3 * static_cast<double>(model.num_heads * model.head_size());
      }
    }
  }
  return operations;
}

TEST(StepWork, AttentionSeesWhatItsWindowsLeave) {
  weights::ModelConfig model = small();
  model.architecture = "mistral";
  for (const int64_t window : {0, 1, 5, 12, 40}) {
    model.sliding_window = window;
    const double operations = token_operations(model, 12) - 6 * multiplied_parameters(model);
    EXPECT_DOUBLE_EQ(12 * operations, attention_operations(model, 12)) << window;
  }
  model.layer_pattern = "sf";
  model.sliding_window = 3;
  EXPECT_DOUBLE_EQ(12 * (token_operations(model, 12) - 6 * multiplied_parameters(model)),
                   attention_operations(model, 12));
}

}  // namespace
}  // namespace atl::plan
