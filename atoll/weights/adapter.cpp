#include "atoll/weights/adapter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "atoll/base/error.h"

namespace atl::weights {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr const char* kPromptName = "prompt_embeddings";

/// As PEFT compares them: the whole name, or what follows a dot in it.
bool fits(std::string_view module, std::string_view target) {
  if (!module.ends_with(target)) return false;
  const size_t before = module.size() - target.size();
  return before == 0 || module[before - 1] == '.';
}

std::string last_part(std::string_view name) {
  return std::string(name.substr(name.find_last_of('.') + 1));
}

/// Last parts of names, each once, in their order.
std::vector<std::string> last_parts(const std::vector<AdapterModule>& modules) {
  std::vector<std::string> parts;
  for (const AdapterModule& module : modules) {
    std::string part = last_part(module.name);
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(std::move(part));
  }
  return parts;
}

void require_modules(const ModelConfig& model, const std::vector<std::string>& targets) {
  const std::vector<AdapterModule> all = adaptable_modules(model);
  for (const std::string& target : targets) {
    const bool is_there = !target.empty() && std::ranges::any_of(all, [&](const auto& module) {
      return fits(module.name, target);
    });
    if (is_there) continue;
    throw UsageError(fmt::format("the model has no projection '{}' for an adapter; it has {}",
                                 target, fmt::join(last_parts(all), ", ")));
  }
}

}  // namespace

double AdapterConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (scales_by_root ? std::sqrt(r) : r);
}

std::vector<AdapterModule> adaptable_modules(const ModelConfig& model) {
  std::vector<AdapterModule> modules;
  std::map<std::pair<int64_t, Role>, int64_t> num_outputs;  // So far.
  for (const ParameterSpec& spec : parameter_specs(model)) {
    const bool is_projection = spec.layer >= 0 && spec.shape.size() == 2 && spec.expert < 0 &&
                               spec.num_experts == 0 && spec.role != Role::kRouter &&
                               spec.name.ends_with(kWeight);
    if (!is_projection) continue;
    AdapterModule module{.name = spec.name.substr(0, spec.name.size() - kWeight.size()),
                         .layer = spec.layer,
                         .role = spec.role,
                         .num_outputs = spec.shape[spec.inputs_first ? 1 : 0],
                         .num_inputs = spec.shape[spec.inputs_first ? 0 : 1],
                         .inputs_first = spec.inputs_first};
    int64_t& before = num_outputs[{spec.layer, spec.role}];
    module.first_output = before;
    before += module.num_outputs;
    modules.push_back(std::move(module));
  }
  return modules;
}

std::vector<std::string> usual_targets(const ModelConfig& model) {
  std::vector<std::string> targets;
  for (const AdapterModule& module : adaptable_modules(model)) {
    if (module.layer == 0 && module.role == Role::kQueryKeyValue) {
      targets.push_back(last_part(module.name));
    }
  }
  if (targets.size() == 3) targets.erase(targets.begin() + 1);  // Keys.
  return targets;
}

std::vector<std::string> targets_of(std::string_view list, const ModelConfig& model) {
  if (list.empty()) return usual_targets(model);
  if (list == "all-linear") return last_parts(adaptable_modules(model));
  std::vector<std::string> targets;
  while (true) {
    const size_t comma = list.find(',');
    targets.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  require_modules(model, targets);
  return targets;
}

std::vector<AdapterModule> adapted_modules(const ModelConfig& model, const AdapterConfig& adapter) {
  require_modules(model, adapter.targets);
  std::vector<AdapterModule> modules = adaptable_modules(model);
  std::erase_if(modules, [&](const AdapterModule& module) {
    return std::ranges::none_of(adapter.targets,
                                [&](const auto& target) { return fits(module.name, target); });
  });
  return modules;
}

void check(const AdapterConfig& adapter) {
  const auto refuse = [](const std::string& what) { throw UsageError("an adapter " + what); };
  if (adapter.is_prompt()) {
    if (adapter.prompt_tokens < 1 || adapter.prompt_tokens > kMostPromptTokens) {
      refuse(fmt::format("with a soft prompt of {} tokens; give 1 to {}", adapter.prompt_tokens,
                         kMostPromptTokens));
    }
    return;
  }
  if (adapter.rank < 1 || adapter.rank > kMostRank) {
    refuse(fmt::format("of rank {}; give 1 to {}", adapter.rank, kMostRank));
  }
  if (!std::isfinite(adapter.alpha) || adapter.alpha <= 0 || adapter.alpha > 1e6) {
    refuse(fmt::format("with alpha = {}; give more than 0 and at most a million", adapter.alpha));
  }
  if (adapter.targets.empty()) refuse("without target modules changes nothing");
}

void require_takes_prompt(const ModelConfig& model) {
  const bool has_learned = model.rotary_size() == 0;
  if (!has_learned && model.embedding_multiplier == 1) return;
  throw UsageError(
      fmt::format("soft prompts are not supported for models with {}; train --adapter lora",
                  has_learned ? "learned positions" : "a factor of the embedding"));
}

std::vector<ParameterSpec> adapter_specs(const ModelConfig& model, const AdapterConfig& adapter,
                                         int64_t begin, int64_t end) {
  check(adapter);
  std::vector<ParameterSpec> specs;
  int64_t offset = 0;
  const auto add = [&](ParameterSpec spec) {
    spec.offset = offset;
    spec.size = spec.shape[0] * spec.shape[1];
    offset += spec.size;
    specs.push_back(std::move(spec));
  };
  if (adapter.is_prompt()) {
    add({.name = kPromptName, .shape = {adapter.prompt_tokens, model.hidden_size}});
    return specs;
  }
  for (const AdapterModule& module : adapted_modules(model, adapter)) {
    if (module.layer < begin || module.layer >= end) continue;
    const std::string name = "base_model.model." + module.name;
    add({.name = name + ".lora_A.weight",
         .shape = {adapter.rank, module.num_inputs},
         .layer = module.layer,
         .role = module.role});
    add({.name = name + ".lora_B.weight",
         .shape = {module.num_outputs, adapter.rank},
         .layer = module.layer,
         .role = module.role});
  }
  return specs;
}

std::vector<ParameterSpec> adapter_specs(const ModelConfig& model, const AdapterConfig& adapter) {
  return adapter_specs(model, adapter, 0, model.num_layers);
}

}  // namespace atl::weights
