#pragma once
// What the commands that read a model share: which model, where it runs, and its tokenizer.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "atoll/data/tokenizer.h"
#include "atoll/model/hf_config.h"
#include "atoll/model/llama.h"

namespace CLI {
class App;
}

namespace atl::cli {

struct ModelArguments {
  std::string model;      // A Hugging Face folder or a run directory.
  std::string tokenizer;  // Empty: the model folder's tokenizer.json.
  std::string device = "cpu";
  int64_t threads = 0;  // 0: all cores.
};

/// MODEL, --tokenizer, --device, --threads.
void add_model_arguments(CLI::App& command, ModelArguments& arguments);

struct LoadedModel {
  std::filesystem::path folder;
  model::SpecialIds ids;
  model::Llama model;
  data::Tokenizer tokenizer;
};

/// Throws UsageError (device) or InputError (files; a tokenizer with more ids than the model).
LoadedModel load_model(const ModelArguments& arguments);

}  // namespace atl::cli
