#pragma once
// The model that a run begins with in place of random weights (--init), and what the run keeps of
// it beside the weights: a chat model that was trained further still knows how chats are written
// and which tokens end an answer. LibTorch-free.
#include <filesystem>
#include <map>
#include <string>

#include "atoll/weights/hf_config.h"

namespace atl::run {

struct InitialModel {
  /// A Hugging Face folder, a GGUF file or a run; where an adapter is trained, one with an adapter
  /// (first_adapter()). Empty: none.
  std::filesystem::path path;
  bool is_strict = false;  // Weights that are not finite are refused; else a warning.

  bool given() const { return !path.empty(); }
  /// The folder with the model. Throws InputError when there is none.
  std::filesystem::path folder() const;
};

/// What a model's folder says of texts, chats and generation (tokenizer/model_texts.h).
struct ModelTexts {
  bool are_kept = false;  // The run began with a model, whose they are.
  weights::SpecialIds ids;
  std::map<std::string, std::string> files;  // Contents by name; it may have a folder.
};

/// Copies them from `model` to the folder `init` of the run directory. Throws InputError.
void keep_model_texts(const std::filesystem::path& model, const std::filesystem::path& run);

/// What keep_model_texts() put there; nothing in a run that began with random weights. The store's
/// `end_of_text` is among the ends. Throws InputError when a file was damaged.
ModelTexts kept_model_texts(const std::filesystem::path& run, int64_t end_of_text);

}  // namespace atl::run
