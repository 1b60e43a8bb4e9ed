#include "atoll/cli_torch/adapter_arguments.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/weights/adapter.h"

namespace atl::cli {
namespace {

/// An adapter by the name that requests call it by. Throws UsageError, InputError.
std::pair<std::string, std::shared_ptr<const model::Adapter>> load_adapter(
    const std::string& word, const model::Model& model) {
  const size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw UsageError(
        fmt::format("--adapter {}: NAME=FOLDER says which adapter requests mean by NAME", word));
  }
  const std::string folder = word.substr(equals + 1);
  const weights::ModelConfig& config = model.config();
  const weights::StoredAdapter stored = weights::load_adapter(folder, config);
  if (stored.config.is_prompt()) {
    throw InputError(
        fmt::format("'{}' is a soft prompt; adapters that are served are LoRA's", folder));
  }
  auto adapter = std::make_shared<model::Adapter>(config, stored.config,
                                                  model::LayerRange{0, config.num_layers},
                                                  model.device(), model::Purpose::kInference);
  const at::NoGradGuard no_grad;
  adapter->parameters().values_P().copy_(at::from_blob(const_cast<float*>(stored.values_P.data()),
                                                       {std::ssize(stored.values_P)}, at::kFloat));
  return {word.substr(0, equals), std::move(adapter)};
}

}  // namespace

void add_adapter_arguments(CLI::App& command, std::vector<std::string>& words) {
  command.add_option(
      "--adapter", words,
      "NAME=FOLDER: requests for the model NAME are answered by this adapter beside "
      "the model (PEFT's folder, or a run of `atoll train --frozen`); again for more");
}

NamedAdapters load_adapters(const std::vector<std::string>& words, const model::Model& model) {
  NamedAdapters loaded;
  for (const std::string& word : words) {
    auto [name, adapter] = load_adapter(word, model);
    loaded.names.push_back(std::move(name));
    loaded.adapters.push_back(std::move(adapter));
  }
  return loaded;
}

}  // namespace atl::cli
