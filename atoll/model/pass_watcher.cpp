#include "atoll/model/pass_watcher.h"

namespace atl::model {
namespace {

void add(StageSpans::Spans& spans, const weights::ParameterSpec& spec) {
  if (!spans.empty() && spans.back().second == spec.offset) {
    spans.back().second += spec.size;
  } else {
    spans.emplace_back(spec.offset, spec.offset + spec.size);
  }
}

}  // namespace

std::vector<StageSpans> stage_spans(const weights::ModelConfig& config) {
  std::vector<StageSpans> stages(static_cast<size_t>(config.num_layers) + 2);
  for (const weights::ParameterSpec& spec : weights::parameter_specs(config)) {
    const bool is_before =
        spec.role == weights::Role::kEmbedding || spec.role == weights::Role::kPositions;
    StageSpans& stage = spec.layer >= 0 ? stages.at(static_cast<size_t>(spec.layer) + 1)
                        : is_before     ? stages.front()
                                        : stages.back();
    add(stage.values, spec);
    add(stage.gradients, spec);
    if (config.tie_embeddings && spec.role == weights::Role::kEmbedding) {
      add(stages.back().values, spec);
    }
  }
  return stages;
}

}  // namespace atl::model
