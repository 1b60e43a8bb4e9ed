#include "atoll/model/pass_watcher.h"

namespace atl::model {
namespace {

void add(PartSpans::Spans& spans, const weights::ParameterSpec& spec) {
  if (!spans.empty() && spans.back().second == spec.offset) {
    spans.back().second += spec.size;
  } else {
    spans.emplace_back(spec.offset, spec.offset + spec.size);
  }
}

}  // namespace

std::vector<PartSpans> part_spans(const weights::ModelConfig& config) {
  std::vector<PartSpans> parts(static_cast<size_t>(config.num_layers) + 2);
  for (const weights::ParameterSpec& spec : weights::parameter_specs(config)) {
    const bool is_before =
        spec.role == weights::Role::kEmbedding || spec.role == weights::Role::kPositions;
    PartSpans& part = spec.layer >= 0 ? parts.at(static_cast<size_t>(spec.layer) + 1)
                      : is_before     ? parts.front()
                                      : parts.back();
    add(part.values, spec);
    add(part.gradients, spec);
    if (config.tie_embeddings && spec.role == weights::Role::kEmbedding) {
      add(parts.back().values, spec);
    }
  }
  return parts;
}

}  // namespace atl::model
