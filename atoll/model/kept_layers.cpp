#include "atoll/model/kept_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::model {
namespace {

/// As ModelConfig::layer_pattern has it.
char kind_of(const weights::ModelConfig& config, int64_t layer) {
  if (config.window_of(layer) > 0) return 's';
  return config.turns(layer) ? 'f' : 'n';
}

weights::ModelConfig config_with(const weights::ModelConfig& source,
                                 std::span<const int64_t> layers) {
  weights::ModelConfig config = source;
  config.num_layers = std::ssize(layers);
  std::string kinds;
  bool is_same = true;
  for (int64_t i = 0; i < std::ssize(layers); ++i) {
    kinds += kind_of(source, layers[static_cast<size_t>(i)]);
    is_same = is_same && kinds.back() == kind_of(config, i);
  }
  if (!is_same) {
    config.layer_pattern = kinds;
    config.full_layers = 0;
  }
  weights::check(config);
  return config;
}

}  // namespace

Model with_layers(const Model& source, std::span<const int64_t> layers) {
  const int64_t num_layers = source.config().num_layers;
  int64_t last = -1;
  for (const int64_t layer : layers) {
    if (layer <= last || layer >= num_layers) {
      throw UsageError(
          fmt::format("layers to keep are increasing numbers from 0 to {}, and {} follows {}",
                      num_layers - 1, layer, last < 0 ? "nothing" : std::to_string(last)));
    }
    last = layer;
  }
  if (layers.empty()) throw UsageError("name a layer to keep");
  Model model(config_with(source.config(), layers), source.device(), Purpose::kInference);
  std::map<int64_t, std::vector<const weights::ParameterSpec*>> by_layer;
  for (const auto& spec : source.parameters().specs()) by_layer[spec.layer].push_back(&spec);
  std::map<int64_t, size_t> num_copied;
  for (const auto& spec : model.parameters().specs()) {
    const int64_t layer = spec.layer < 0 ? spec.layer : layers[static_cast<size_t>(spec.layer)];
    const weights::ParameterSpec& from = *by_layer.at(layer).at(num_copied[spec.layer]++);
    ATOLL_CHECK(from.shape == spec.shape, "layers are alike");
    model.parameters().view(spec.name).copy_(source.parameters().view(from.name));
  }
  return model;
}

}  // namespace atl::model
