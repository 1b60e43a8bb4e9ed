#include "atoll/run/adapter_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string_view>

#include "atoll/base/error.h"

namespace atl::run {
namespace {

constexpr double kSameScale = 1e-6;  // Of two, relatively: PEFT's may come of a root.

/// PEFT may name the same projections otherwise, and scale by the root of the rank.
bool is_same(const weights::AdapterConfig& a, const weights::AdapterConfig& b,
             const weights::ModelConfig& model) {
  const auto is_same_spec = [](const auto& one, const auto& other) {
    return one.name == other.name && one.shape == other.shape;
  };
  if (!std::ranges::equal(weights::adapter_specs(model, a), weights::adapter_specs(model, b),
                          is_same_spec)) {
    return false;
  }
  return a.is_prompt() || std::abs(a.scale() - b.scale()) <= kSameScale * b.scale();
}

/// With alpha as Atoll scales by it.
std::string text_of(const weights::AdapterConfig& adapter) {
  if (adapter.is_prompt()) return fmt::format("a soft prompt of {} tokens", adapter.prompt_tokens);
  return fmt::format("lora of rank {}, alpha {:.6g}, targets {}", adapter.rank,
                     adapter.scale() * static_cast<double>(adapter.rank),
                     fmt::join(adapter.targets, ","));
}

}  // namespace

void AdapterOptions::visit(SettingList& list) {
  const auto usual = [&] { list.unsaid_if(!is_on()); };
  list.section("adapter", "what is trained in the place of a model that stays as it is (--frozen)");
  list.add("kind", kind, "none: the model itself; lora; prompt: rows before each text's own",
           {"none", "lora", "prompt"});
  usual();
  list.add("rank", rank, "lora: of its matrices", {.min = 1, .max = weights::kMostRank});
  usual();
  list.add("alpha", alpha, "lora: what it adds is multiplied by alpha / rank",
           {.min = 1e-6, .max = 1e6});
  usual();
  list.add("targets", targets,
           "lora: projections that it changes, q_proj,v_proj as the model's files name them, or "
           "all-linear; empty: queries and values");
  usual();
  list.add("prompt_tokens", prompt_tokens, "prompt: its rows",
           {.min = 1, .max = weights::kMostPromptTokens});
  usual();
  list.add("base", base, "the model that stays as it is: a Hugging Face folder, GGUF file or run");
  list.local();
  usual();
  list.add("servers", servers,
           "the coordinator of a swarm whose servers have the model's layers, HOST:PORT or an "
           "invite for a gateway; empty: they are here");
  list.local();
  usual();
  list.add("wire", wire, "how activations travel to servers and back: fp32 (exact), bf16, int8",
           {"fp32", "bf16", "int8"});
  list.local();
  usual();
  list.add("in_flight", in_flight, "micro-batches that are with servers at once",
           {.min = 1, .max = 64});
  list.local();
  usual();
}

void require_base(const AdapterOptions& options) {
  if (options.is_on() && options.base.empty()) {
    throw UsageError(
        fmt::format("adapter.kind = '{}' is an adapter of a model that stays as it is: name it, "
                    "--frozen MODEL",
                    options.kind));
  }
  if (!options.is_on() && !options.base.empty()) {
    throw UsageError("--frozen: nothing would be trained; add --adapter lora, or --adapter prompt");
  }
  if (!options.is_on() && options.is_remote()) {
    throw UsageError("--servers is for adapters (--frozen MODEL --adapter lora)");
  }
}

void check_used(const AdapterOptions& options, const std::vector<std::string>& overrides) {
  struct Use {
    std::string_view field;
    bool is_used;
    std::string_view wants;
  };
  const bool is_lora = options.kind == "lora";
  const bool is_remote = options.is_remote();
  const Use uses[] = {
      {"adapter.rank", is_lora, "adapter.kind = 'lora'"},
      {"adapter.alpha", is_lora, "adapter.kind = 'lora'"},
      {"adapter.targets", is_lora, "adapter.kind = 'lora'"},
      {"model.router_aux_loss", !options.is_on(), "a model that is trained (--frozen is none)"},
      {"adapter.prompt_tokens", options.kind == "prompt", "adapter.kind = 'prompt'"},
      {"adapter.wire", is_remote, "adapter.servers"},
      {"adapter.in_flight", is_remote, "adapter.servers"}};
  for (const std::string_view assignment : overrides) {
    const std::string_view name = assignment.substr(0, assignment.find('='));
    const auto* const use = std::ranges::find(uses, name, &Use::field);
    if (use == std::end(uses) || use->is_used) continue;
    throw UsageError(fmt::format("{} has no effect without {}; leave it out", name, use->wants));
  }
}

weights::AdapterConfig adapter_config(const AdapterOptions& options,
                                      const weights::ModelConfig& model) {
  weights::AdapterConfig config{
      .base = std::filesystem::path(options.base).lexically_normal().string()};
  if (options.kind == "prompt") {
    weights::require_takes_prompt(model);
    config.rank = 0;
    config.prompt_tokens = options.prompt_tokens;
  } else {
    config.rank = options.rank;
    config.alpha = options.alpha;
    config.targets = weights::targets_of(options.targets, model);
  }
  weights::check(config);
  return config;
}

weights::StoredAdapter first_adapter(const std::filesystem::path& init,
                                     const weights::AdapterConfig& wanted,
                                     const weights::ModelConfig& model) {
  weights::StoredAdapter stored;
  try {
    stored = weights::load_adapter(init, model);
  } catch (const InputError& error) {
    throw UsageError(fmt::format(
        "--init with --frozen is an adapter of that model to begin with: {}", error.what()));
  }
  if (is_same(stored.config, wanted, model)) return stored;
  throw UsageError(fmt::format(
      "--init: '{}' holds {}, and what is to be trained is {}; ask for the same (--adapter, "
      "--adapter.rank, --adapter.alpha, --adapter.targets, --adapter.prompt_tokens)",
      init.string(), text_of(stored.config), text_of(wanted)));
}

}  // namespace atl::run
