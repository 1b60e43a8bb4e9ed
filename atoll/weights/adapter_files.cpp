// Adapters on disk, as PEFT has them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/codec/float_bits.h"
#include "atoll/weights/adapter.h"
#include "atoll/weights/checkpoint.h"
#include "atoll/weights/families.h"
#include "atoll/weights/hf_keys.h"
#include "atoll/weights/manifest.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Keys by which PEFT makes something of LoRA that is not computed here; each is absent, null,
/// false, empty or "none" where it does not.
constexpr std::array<const char*, 16> kOtherKinds = {"use_dora",          "rank_pattern",
                                                     "alpha_pattern",     "modules_to_save",
                                                     "lora_bias",         "layer_replication",
                                                     "megatron_config",   "layers_to_transform",
                                                     "use_qalora",        "exclude_modules",
                                                     "target_parameters", "trainable_token_indices",
                                                     "layers_pattern",    "alora_invocation_tokens",
                                                     "corda_config",      "bias"};

bool is_off(const json& value) {
  return value.is_null() || value == false || value == "none" ||
         (value.is_structured() && value.empty());
}

std::vector<std::string> targets_in(const HfReader& reader) {
  const json* const found = reader.find("target_modules");
  std::vector<std::string> targets;
  if (found != nullptr && found->is_array()) {
    for (const json& each : *found) {
      if (each.is_string()) targets.push_back(each.get<std::string>());
    }
  }
  const bool is_list = found != nullptr && found->is_array() && targets.size() == found->size();
  if (!is_list || targets.empty() || targets.size() > 256) {
    reader.fail("'target_modules' is to be a list of names of modules, 1 to 256");
  }
  std::ranges::sort(targets);  // PEFT writes a set.
  return targets;
}

/// The newest complete checkpoint with an adapter, of a run or its islands.
fs::path newest_adapter(const fs::path& run) {
  std::vector<std::pair<std::pair<int64_t, std::string>, fs::path>> found;
  std::vector<fs::path> places = {run};
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(run, none)) {
    if (entry.path().filename().string().starts_with("island-")) places.push_back(entry.path());
  }
  for (const fs::path& place : places) {
    for (const auto& [step, folder] : list_checkpoints(place / "checkpoints")) {
      if (!fs::exists(folder / kAdapterConfigFile)) continue;
      // Of one step all islands have the same: the first by name, so that runs repeat.
      found.push_back({{-step, place.filename().string()}, folder});
    }
  }
  return found.empty() ? fs::path() : std::ranges::min(found).second;
}

void take(const SafetensorsFile& file, const ParameterSpec& spec, std::vector<float>& values_P) {
  const TensorView& tensor = file.at(spec.name);
  const std::string place = file.path().string();
  if (tensor.shape != spec.shape) {
    throw InputError(
        fmt::format("'{}': tensor '{}' has shape [{}], and for this model and rank it "
                    "is [{}]; is it an adapter of another model?",
                    place, spec.name, fmt::join(tensor.shape, ", "), fmt::join(spec.shape, ", ")));
  }
  const std::span values(values_P.data() + spec.offset, static_cast<size_t>(spec.size));
  copy_as_f32(tensor, values, place);
  if (!std::ranges::all_of(values, codec::is_finite)) {
    throw InputError(
        fmt::format("'{}': tensor '{}' has values that are not finite", place, spec.name));
  }
}

}  // namespace

std::string to_adapter_config(const ModelConfig& model, const AdapterConfig& adapter) {
  nlohmann::ordered_json out{{"base_model_name_or_path", adapter.base},
                             {"task_type", "CAUSAL_LM"},
                             {"inference_mode", true}};
  if (adapter.is_prompt()) {
    out["peft_type"] = "PROMPT_TUNING";
    out["num_virtual_tokens"] = adapter.prompt_tokens;
    out["token_dim"] = model.hidden_size;
    out["num_transformer_submodules"] = 1;
    out["num_attention_heads"] = model.num_heads;
    out["num_layers"] = model.num_layers;
    out["prompt_tuning_init"] = "RANDOM";
    return out.dump(2) + "\n";
  }
  const std::vector<AdapterModule> modules = adapted_modules(model, adapter);
  out["peft_type"] = "LORA";
  out["r"] = adapter.rank;
  out["lora_alpha"] = adapter.alpha;
  out["lora_dropout"] = 0.0;
  out["bias"] = "none";
  out["use_rslora"] = adapter.scales_by_root;
  out["target_modules"] = adapter.targets;
  out["fan_in_fan_out"] = std::ranges::any_of(modules, &AdapterModule::inputs_first);
  return out.dump(2) + "\n";
}

AdapterConfig from_adapter_config(std::string_view text, const std::string& file) {
  const json in = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!in.is_object()) throw InputError(fmt::format("'{}' is no JSON object", file));
  const HfReader reader(in, file);
  AdapterConfig adapter;
  adapter.base = reader.text("base_model_name_or_path", "");
  const std::string kind = reader.text("peft_type", "");
  if (kind == "PROMPT_TUNING") {
    adapter.rank = 0;
    adapter.prompt_tokens = reader.integer("num_virtual_tokens");
  } else if (kind == "LORA") {
    adapter.rank = reader.integer("r");
    if (adapter.rank < 1) reader.fail(fmt::format("r = {} is no rank", adapter.rank));
    adapter.alpha = reader.real("lora_alpha", 8);
    adapter.scales_by_root = reader.flag("use_rslora", false);
    for (const char* const key : kOtherKinds) {
      const json* const value = reader.find(key);
      if (value != nullptr && !is_off(*value)) {
        reader.fail(fmt::format("{} = {} is not supported; only plain LoRA is", key,
                                value->dump().substr(0, 60)));
      }
    }
    adapter.targets = targets_in(reader);
  } else {
    reader.fail(fmt::format("peft_type is '{}'; LORA and PROMPT_TUNING are supported", kind));
  }
  try {
    check(adapter);
  } catch (const UsageError& error) {
    reader.fail(error.what());
  }
  return adapter;
}

fs::path resolve_adapter(const fs::path& path) {
  fs::path folder = path;
  if (!fs::exists(folder / kAdapterConfigFile)) folder = newest_adapter(path);
  if (folder.empty()) {
    throw InputError(fmt::format("'{}' holds no adapter ({}), nor is it a run that has trained one",
                                 path.string(), kAdapterConfigFile));
  }
  if (fs::exists(folder / kAdapterFile)) return folder;
  if (fs::exists(folder / "adapter_model.bin")) {
    throw InputError(fmt::format(
        "'{}': adapter_model.bin is a pickle, which can run any program when it is read, and is "
        "refused; save the adapter as {} (PEFT: save_pretrained(..., safe_serialization=True))",
        folder.string(), kAdapterFile));
  }
  throw InputError(fmt::format("'{}' has no {}", folder.string(), kAdapterFile));
}

StoredAdapter load_adapter(const fs::path& path, const ModelConfig& model) {
  const fs::path folder = resolve_adapter(path);
  const std::string config_file = (folder / kAdapterConfigFile).string();
  if (Manifest::exists(folder)) Manifest(folder).check_file(kAdapterConfigFile);
  StoredAdapter adapter{.config = from_adapter_config(read_file(config_file), config_file),
                        .values_P = {}};
  std::vector<ParameterSpec> specs;
  try {
    specs = adapter_specs(model, adapter.config);
  } catch (const UsageError& error) {
    throw InputError(fmt::format("'{}': {}", config_file, error.what()));
  }
  const SafetensorsFile file(folder / kAdapterFile);
  if (Manifest::exists(folder)) Manifest(folder).check_tensors(kAdapterFile, file);
  adapter.values_P.resize(static_cast<size_t>(specs.back().offset + specs.back().size));
  std::set<std::string> known;
  for (const ParameterSpec& spec : specs) {
    take(file, spec, adapter.values_P);
    known.insert(spec.name);
  }
  for (const TensorView& tensor : file.tensors()) {
    if (known.contains(tensor.name)) continue;
    throw InputError(
        fmt::format("'{}': tensor '{}' belongs to nothing that the adapter of {} "
                    "changes in this model",
                    file.path().string(), tensor.name, config_file));
  }
  return adapter;
}

}  // namespace atl::weights
