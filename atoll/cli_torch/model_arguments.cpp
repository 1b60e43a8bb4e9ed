#include "atoll/cli_torch/model_arguments.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/cli/whole_number.h"
#include "atoll/model/device.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_files.h"

namespace atl::cli {
void add_model_arguments(CLI::App& command, ModelArguments& arguments) {
  command
      .add_option(
          "model", arguments.model,
          "a Hugging Face model folder, a GGUF file, or a run directory (its newest checkpoint)")
      ->required();
  command.add_option("--tokenizer", arguments.tokenizer,
                     "tokenizer.json, or another file or folder (default: the model's)");
  command.add_option("--device", arguments.device, "cpu, cuda, cuda:1, ... (default: cpu)");
  command.add_option("--threads", arguments.threads, "CPU threads (default: all cores)")
      ->check(whole_number<int64_t>(1, 4096));
  const auto types = weights::names_of(weights::ServedType());
  command
      .add_option("--dtype", arguments.dtype,
                  "of the layers' matrices: auto (as stored), bf16, int8, int4: less memory, "
                  "for a little quality")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(types.begin(), types.end())));
  const auto kv_types = weights::names_of(weights::KvType());
  command
      .add_option("--kv-dtype", arguments.kv_dtype,
                  "of keys and values: auto (bf16 unless the model's files are fp32), fp32, bf16")
      ->capture_default_str()
      ->check(CLI::IsMember(std::vector<std::string>(kv_types.begin(), kv_types.end())));
  command.add_flag("--strict", arguments.strict,
                   "refuse weights that are not finite (default: a warning)");
}

weights::ServedAs served_as(const ModelArguments& arguments) {
  return weights::ServedAs::of_options(arguments.dtype, arguments.kv_dtype);
}

void report_not_finite(const model::Model& model, const std::filesystem::path& folder,
                       bool strict) {
  for (const std::string& sentence : model.parameters().not_finite()) {
    const std::string what = fmt::format("'{}': {}", folder.string(), sentence);
    if (strict) throw InputError(what);
    fmt::print(stderr, "atoll: warning: {}\n", what);
  }
}

std::filesystem::path tokenizer_place(const ModelArguments& arguments, const LoadedModel& loaded) {
  return arguments.tokenizer.empty() ? loaded.folder : std::filesystem::path(arguments.tokenizer);
}

namespace {

LoadedModel with_tokenizer(const ModelArguments& arguments, std::filesystem::path folder,
                           model::Model model) {
  const std::filesystem::path tokenizer =
      arguments.tokenizer.empty() ? folder : std::filesystem::path(arguments.tokenizer);
  LoadedModel loaded{
      .folder = folder,
      .ids = weights::load_hf_config(folder).ids,
      .model = std::move(model),
      .tokenizer = tokenizer::Tokenizer::load(tokenizer),
  };
  const int64_t vocab_size = loaded.model.config().vocab_size;
  if (!loaded.tokenizer.fits(vocab_size)) {
    throw InputError(fmt::format(
        "'{}' has {} tokens and the model in '{}' only {}: it is not this "
        "model's tokenizer",
        tokenizer.string(), loaded.tokenizer.vocab_size(), folder.string(), vocab_size));
  }
  return loaded;
}

}  // namespace

LoadedModel load_model(const ModelArguments& arguments) {
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  const at::Device device = model::usable_device(arguments.device, "--device");
  const std::filesystem::path folder = weights::resolve_model(arguments.model);
  const weights::ServedAs as = served_as(arguments);
  if (as == weights::ServedAs()) {
    LoadedModel loaded = with_tokenizer(arguments, folder, model::load_model(folder, device));
    report_not_finite(loaded.model, folder, arguments.strict);
    return loaded;
  }
  if (!device.is_cpu()) {
    throw UsageError(
        "--dtype, --kv-dtype: with --device weights, keys and values are fp32; others are for the "
        "CPU as yet");
  }
  const weights::ModelConfig config = weights::load_hf_config(folder).config;
  auto files = std::make_shared<const weights::ModelFiles>(folder, config);
  // Of the weights as stored: in blocks they may look well.
  report_not_finite(model::Model(config, files, model::LayerRange{}), folder, arguments.strict);
  files =
      weights::as_served(config, std::move(files), as, 0, config.num_layers, at::get_num_threads());
  return with_tokenizer(arguments, folder, model::Model(config, std::move(files)));
}

LoadedModel load_without_weights(const ModelArguments& arguments,
                                 const weights::ModelManifest& manifest) {
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  const std::filesystem::path folder = weights::resolve_model(arguments.model);
  const weights::ModelConfig own = weights::load_hf_config(folder).config;
  const weights::ModelConfig& config = manifest.config;
  if (own.vocab_size != config.vocab_size || own.hidden_size != config.hidden_size ||
      own.num_layers != config.num_layers) {
    throw InputError(fmt::format(
        "'{}' is a model of {} layers, {} wide, with {} ids, and the servers' has {}, {} and {}: "
        "name a folder of theirs",
        folder.string(), own.num_layers, own.hidden_size, own.vocab_size, config.num_layers,
        config.hidden_size, config.vocab_size));
  }
  auto files = std::make_shared<const weights::ModelFiles>(config, manifest.tensors, nullptr);
  return with_tokenizer(arguments, folder,
                        model::Model(config, std::move(files), model::LayerRange{}));
}

LoadedModel load_model(const ModelArguments& arguments, model::LayerRange layers) {
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  const std::filesystem::path folder = weights::resolve_model(arguments.model);
  const weights::ModelConfig config = weights::load_hf_config(folder).config;
  auto files = std::make_shared<const weights::ModelFiles>(folder, config);
  return with_tokenizer(arguments, folder, model::Model(config, std::move(files), layers));
}

}  // namespace atl::cli
