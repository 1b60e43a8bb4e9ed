#pragma once
// Adapters: what is trained in the place of a model whose weights stay as they are. LoRA (Hu et al.
// 2021): beside a projection's W lie A (rank, inputs) and B (outputs, rank), and y = x W^T + scale
// (x A^T) B^T. A soft prompt (Lester et al. 2021): rows that are read before a text's own tokens.
// On disk as PEFT has them: adapter_config.json and adapter_model.safetensors. Free of LibTorch;
// pure, but for files.
//
// Shapes: P = all parameters of an adapter, in the order of adapter_specs().
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::weights {

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
constexpr int64_t kMostRank = 4096;
constexpr int64_t kMostPromptTokens = 65'536;

struct AdapterConfig {
  int64_t rank = 8;             // Of LoRA; 0: it is a soft prompt.
  double alpha = 16;            // LoRA's scale is alpha / rank,
  bool scales_by_root = false;  // or alpha / sqrt(rank) (Kalajdzievski 2023).
  /// Ends of the names of the projections that LoRA changes: "q_proj", "mlp.up_proj".
  std::vector<std::string> targets = {};
  int64_t prompt_tokens = 0;  // Of a soft prompt.
  std::string base = {};      // The model's name, for people.

  bool is_prompt() const { return rank == 0; }
  double scale() const;
  bool operator==(const AdapterConfig&) const = default;
};

/// A projection that LoRA may change: some of the outputs of all those of its role.
struct AdapterModule {
  std::string name;  // As Hugging Face has it, without ".weight".
  int64_t layer = 0;
  Role role = Role::kQueryKeyValue;
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  int64_t num_inputs = 0;
  bool inputs_first = false;  // In the model's files.
};

/// All that a model has: its projections in layers, but for those of experts.
std::vector<AdapterModule> adaptable_modules(const ModelConfig& model);

/// Queries' and values' projections, or the one that makes both: PEFT's usual ones.
std::vector<std::string> usual_targets(const ModelConfig& model);

/// "q_proj,v_proj" as a list; "all-linear": all that the model has. Empty: the usual ones. Throws
/// UsageError naming what the model does not have.
std::vector<std::string> targets_of(std::string_view list, const ModelConfig& model);

/// Those that the adapter changes, layer by layer. Throws UsageError where a target fits none.
std::vector<AdapterModule> adapted_modules(const ModelConfig& model, const AdapterConfig& adapter);

/// The adapter's parameters, by PEFT's names: A and B of each of its modules in the layers from
/// `begin` to before `end`, one behind the other; or the prompt. Throws UsageError: see check().
std::vector<ParameterSpec> adapter_specs(const ModelConfig& model, const AdapterConfig& adapter,
                                         int64_t begin, int64_t end);
std::vector<ParameterSpec> adapter_specs(const ModelConfig& model, const AdapterConfig& adapter);

/// Throws UsageError saying which of its sizes cannot be.
void check(const AdapterConfig& adapter);

/// Throws UsageError where PEFT would read a soft prompt otherwise: there positions that are
/// learned, and a factor of the embedding, are the prompt's as well.
void require_takes_prompt(const ModelConfig& model);

/// The text of adapter_config.json.
std::string to_adapter_config(const ModelConfig& model, const AdapterConfig& adapter);
/// Throws InputError naming `file`: what is no LoRA, or one with parts that are not supported here.
AdapterConfig from_adapter_config(std::string_view text, const std::string& file);

struct StoredAdapter {
  AdapterConfig config;
  std::vector<float> values_P;
};

/// The folder that `path` means: itself, or a run's newest checkpoint. Throws InputError where it
/// holds no adapter, or one that is a pickle.
std::filesystem::path resolve_adapter(const std::filesystem::path& path);

/// Of a folder, for that model. Throws InputError naming the file and the tensor that is missing,
/// too many, of another shape, or not finite.
StoredAdapter load_adapter(const std::filesystem::path& path, const ModelConfig& model);

}  // namespace atl::weights
