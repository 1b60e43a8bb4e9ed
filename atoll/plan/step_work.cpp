#include "atoll/plan/step_work.h"

#include <algorithm>

namespace atl::plan {
namespace {

bool is_multiplied(const weights::ParameterSpec& spec, bool tie_embeddings) {
  switch (spec.role) {
    case weights::Role::kEmbedding:
      return tie_embeddings;  // Then it is the head too.
    case weights::Role::kQueryKeyValue:
    case weights::Role::kAttentionOutput:
    case weights::Role::kRouter:
    case weights::Role::kMlpInput:
    case weights::Role::kMlpOutput:
    case weights::Role::kHead:
      return !spec.is_bias();
    default:
      return false;
  }
}

/// Positions that the queries of a row see, all together.
double positions_seen(int64_t length, int64_t window) {
  const auto all = static_cast<double>(length);
  const auto wide = static_cast<double>(window == 0 ? length : std::min(window, length));
  return wide * (wide + 1) / 2 + (all - wide) * wide;
}

}  // namespace

double multiplied_parameters(const weights::ModelConfig& model) {
  double sum = 0;
  for (const weights::ParameterSpec& spec : weights::parameter_specs(model)) {
    if (!is_multiplied(spec, model.tie_embeddings)) continue;
    const bool is_expert = spec.expert >= 0 || spec.num_experts > 0;
    const double share = is_expert ? static_cast<double>(model.experts_per_token) /
                                         static_cast<double>(model.num_experts)
                                   : 1;
    sum += share * static_cast<double>(spec.size);
  }
  return sum;
}

double token_operations(const weights::ModelConfig& model, int64_t sequence_length) {
  double seen = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    seen += positions_seen(sequence_length, model.window_of(layer));
  }
  const auto width = static_cast<double>(model.num_heads * model.head_size());
  return 6 * multiplied_parameters(model) +
         12 * width * seen / static_cast<double>(sequence_length);
}

}  // namespace atl::plan
