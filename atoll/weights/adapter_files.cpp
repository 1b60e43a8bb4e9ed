// Adapters on disk, as PEFT has them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/name.h"
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

/// Keys of PEFT's LoRA that are read here, or change nothing of what it computes. Any other one may
/// make something else of it: it is to be null, false, empty or "none".
constexpr std::array<std::string_view, 19> kKnownKeys = {
    "peft_type",          "r",
    "lora_alpha",         "use_rslora",
    "target_modules",     "base_model_name_or_path",
    "init_lora_weights",  "task_type",
    "inference_mode",     "fan_in_fan_out",
    "lora_dropout",       "auto_mapping",
    "revision",           "peft_version",
    "megatron_core",      "eva_config",
    "qalora_group_size",  "runtime_config",
    "ensure_weight_tying"};

/// Ways to begin that leave the model's own weights as they are. Others (PiSSA, OLoRA, CorDA,
/// LoftQ) take from those what the adapter begins with, and it fits no other model.
constexpr std::array<std::string_view, 3> kPlainBeginnings = {"gaussian", "orthogonal", "eva"};

bool is_off(const json& value) {
  return value.is_null() || value == false || value == "none" || value == "" ||
         (value.is_structured() && value.empty());
}

void require_plain(const json& in, const HfReader& reader) {
  for (const auto& [key, value] : in.items()) {
    if (std::ranges::find(kKnownKeys, key) != kKnownKeys.end() || is_off(value)) continue;
    reader.fail(fmt::format("{} = {} is not supported; only plain LoRA is", printable(key),
                            value.dump().substr(0, 60)));
  }
  const json* const begin = reader.find("init_lora_weights");
  if (begin == nullptr || begin->is_boolean()) return;
  const bool is_plain =
      begin->is_string() &&
      std::ranges::find(kPlainBeginnings, begin->get<std::string>()) != kPlainBeginnings.end();
  if (is_plain) return;
  reader.fail(
      fmt::format("init_lora_weights = {} is not supported: such an adapter belongs to other "
                  "weights than the model's; have PEFT convert it to plain LoRA",
                  begin->dump().substr(0, 60)));
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

void require_shape(const SafetensorsFile& file, const ParameterSpec& spec) {
  const TensorView& tensor = file.at(spec.name);
  if (tensor.shape == spec.shape) return;
  throw InputError(fmt::format(
      "'{}': tensor '{}' has shape [{}], and for this model and rank it "
      "is [{}]; is it an adapter of another model?",
      file.path().string(), spec.name, fmt::join(tensor.shape, ", "), fmt::join(spec.shape, ", ")));
}

void take(const SafetensorsFile& file, const ParameterSpec& spec, std::vector<float>& values_P) {
  const TensorView& tensor = file.at(spec.name);
  const std::string place = file.path().string();
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
    require_plain(in, reader);
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
  // Before there is memory for them: the file says what their number is.
  for (const ParameterSpec& spec : specs) require_shape(file, spec);
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
