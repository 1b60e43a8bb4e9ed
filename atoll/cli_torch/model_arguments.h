#pragma once
// What the commands that read a model share: which model, where it runs, and its tokenizer.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "atoll/model/model.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/weights/hf_config.h"
#include "atoll/weights/model_manifest.h"
#include "atoll/weights/served_type.h"

namespace CLI {
class App;
}

namespace atl::cli {

struct ModelArguments {
  std::string model;      // A Hugging Face folder, a GGUF file or a run directory.
  std::string tokenizer;  // Empty: the model's.
  std::string device = "cpu";
  int64_t threads = 0;  // 0: all cores.
  std::string dtype = "auto";
  std::string kv_dtype = "auto";
  bool strict = false;  // Weights that are not finite are refused.
};

/// MODEL, --tokenizer, --device, --threads, --dtype, --kv-dtype, --strict.
void add_model_arguments(CLI::App& command, ModelArguments& arguments);

struct LoadedModel {
  std::filesystem::path folder;
  weights::SpecialIds ids;
  model::Model model;
  tokenizer::Tokenizer tokenizer;
};

/// In what types its layers compute, and keep keys and values.
weights::ServedAs served_as(const ModelArguments& arguments);

/// What the tokenizer is loaded from, beside which chat templates lie.
std::filesystem::path tokenizer_place(const ModelArguments& arguments, const LoadedModel& loaded);

/// Says on stderr which weights are not finite; when `strict`, throws InputError.
void report_not_finite(const model::Model& model, const std::filesystem::path& folder, bool strict);

/// Throws UsageError (device) or InputError (files; a tokenizer with more ids than the model).
LoadedModel load_model(const ModelArguments& arguments);
/// The same on the CPU with these layers alone; of the others nothing is read, and no weights are
/// checked.
LoadedModel load_model(const ModelArguments& arguments, model::LayerRange layers);
/// Tokenizer and settings of a model of which no weights are here, as others serve it. Throws
/// InputError where the folder is another model's.
LoadedModel load_without_weights(const ModelArguments& arguments,
                                 const weights::ModelManifest& manifest);

}  // namespace atl::cli
