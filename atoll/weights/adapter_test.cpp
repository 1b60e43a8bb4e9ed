// Adapters as PEFT has them: names, shapes, and what is refused.
#include "atoll/weights/adapter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>

#include "atoll/base/error.h"
#include "atoll/testing/sample_models.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/weights/manifest.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

AdapterConfig lora() { return {.rank = 2, .alpha = 4, .targets = {"q_proj", "v_proj"}}; }

using Edit = std::function<void(std::vector<ParameterSpec>&, std::vector<float>&)>;

/// A folder with an adapter of tiny(), of values that are their numbers.
void save(const fs::path& folder, const AdapterConfig& config, const Edit& edit = {}) {
  fs::create_directories(folder);
  std::vector<ParameterSpec> specs = adapter_specs(tiny(), config);
  std::vector<float> values(static_cast<size_t>(specs.back().offset + specs.back().size));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  if (edit) edit(specs, values);
  std::vector<TensorView> tensors;
  for (const ParameterSpec& spec : specs) {
    const std::span own(values.data() + spec.offset, static_cast<size_t>(spec.size));
    tensors.push_back(
        {.name = spec.name, .type = DType::kF32, .shape = spec.shape, .bytes = std::as_bytes(own)});
  }
  write_safetensors(folder / kAdapterFile, tensors, {{"format", "pt"}});
  std::ofstream(folder / kAdapterConfigFile) << to_adapter_config(tiny(), config);
}

std::string refusal(const fs::path& folder) {
  try {
    load_adapter(folder, tiny());
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST(Adapter, HasPeftsNamesAndShapes) {
  const auto specs = adapter_specs(tiny(), lora());
  ASSERT_EQ(specs.size(), 8U);  // Two layers, two modules, A and B.
  EXPECT_EQ(specs[0].name, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_THAT(specs[0].shape, ElementsAre(2, 8));
  EXPECT_EQ(specs[3].name, "base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight");
  EXPECT_THAT(specs[3].shape, ElementsAre(4, 2));
  const auto modules = adapted_modules(tiny(), lora());
  EXPECT_EQ(modules[1].first_output, 12) << "values lie behind queries and keys";
  EXPECT_THAT(usual_targets(tiny()), ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(targets_of("all-linear", tiny()), ElementsAre("q_proj", "k_proj", "v_proj", "o_proj",
                                                            "gate_proj", "up_proj", "down_proj"));
  EXPECT_THROW(targets_of("q_proj,query", tiny()), UsageError);
  EXPECT_THROW(targets_of("roj", tiny()), UsageError) << "not the end of a word alone";
}

TEST(Adapter, EveryFamilyHasProjectionsForIt) {
  for (const ModelConfig& config : varieties()) {
    AdapterConfig adapter = lora();
    adapter.targets = usual_targets(config);
    const auto specs = adapter_specs(config, adapter);
    EXPECT_GE(specs.size(), 4U) << config.architecture;
    // The parts of layers are one behind the other.
    const auto second = adapter_specs(config, adapter, 1, 2);
    EXPECT_EQ(specs.size(), 2 * second.size()) << config.architecture;
    EXPECT_EQ(specs[second.size()].name, second[0].name);
  }
}

TEST(Adapter, ComesBackFromItsFolder) {
  const TestFolder folder;
  save(folder / "a", lora());
  const StoredAdapter adapter = load_adapter(folder / "a", tiny());
  EXPECT_EQ(adapter.config, lora());
  EXPECT_EQ(adapter.values_P.at(17), 17.0F);
  AdapterConfig prompt{.rank = 0, .prompt_tokens = 3};
  save(folder / "p", prompt);
  const StoredAdapter read = load_adapter(folder / "p", tiny());
  EXPECT_TRUE(read.config.is_prompt());
  EXPECT_EQ(read.values_P.size(), 24U);
}

TEST(Adapter, OfAnotherShapeOrRankIsRefused) {
  const TestFolder folder;
  save(folder / "shape", lora(), [](auto& specs, auto&) { specs[1].shape = {2, 8}; });
  EXPECT_THAT(refusal(folder / "shape"), HasSubstr("q_proj.lora_B.weight' has shape [2, 8]"));
  save(folder / "rank", lora());
  AdapterConfig other = lora();
  other.rank = 3;
  std::ofstream(folder / "rank" / kAdapterConfigFile) << to_adapter_config(tiny(), other);
  EXPECT_THAT(refusal(folder / "rank"), HasSubstr("it is [3, 8]"));
  save(folder / "more", lora(),
       [](auto& specs, auto&) { specs.push_back(specs[0]), specs.back().name = "x"; });
  EXPECT_THAT(refusal(folder / "more"), HasSubstr("'x' belongs to nothing"));
  save(folder / "fewer", lora(), [](auto& specs, auto&) { specs.pop_back(); });
  EXPECT_THAT(refusal(folder / "fewer"), HasSubstr("lora_B.weight"));
}

TEST(Adapter, WithValuesThatAreNotFiniteIsRefused) {
  const TestFolder folder;
  save(folder / "a", lora(), [](auto&, auto& values) { values[5] = std::nanf(""); });
  EXPECT_THAT(refusal(folder / "a"), HasSubstr("not finite"));
}

TEST(Adapter, PickleIsRefused) {
  const TestFolder folder;
  save(folder / "a", lora());
  fs::rename(folder / "a" / kAdapterFile, folder / "a" / "adapter_model.bin");
  EXPECT_THAT(refusal(folder / "a"), HasSubstr("is a pickle"));
  fs::remove(folder / "a" / "adapter_model.bin");
  EXPECT_THAT(refusal(folder / "a"), HasSubstr("has no adapter_model.safetensors"));
  EXPECT_THAT(refusal(folder / "none"), HasSubstr("holds no adapter"));
}

TEST(Adapter, SoftPromptsAreForModelsThatReadThemAsPeftDoes) {
  for (const ModelConfig& config : varieties()) {
    const bool is_refused = config.architecture == "gpt2" || config.embedding_multiplier != 1;
    if (is_refused) {
      EXPECT_THROW(require_takes_prompt(config), UsageError) << config.architecture;
    } else {
      EXPECT_NO_THROW(require_takes_prompt(config)) << config.architecture;
    }
  }
}

TEST(Adapter, OfAnotherKindIsRefused) {
  const auto refused = [](const std::string& keys) -> std::string {
    try {
      from_adapter_config(
          R"({"peft_type": "LORA", "r": 4, "target_modules": ["q_proj"])" + keys + "}", "f");
    } catch (const InputError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refused(R"(, "lora_alpha": 8, "bias": "none", "modules_to_save": null)"), "");
  EXPECT_EQ(refused(R"(, "init_lora_weights": true, "megatron_core": "megatron.core", "new": {})"),
            "");
  EXPECT_EQ(refused(R"(, "init_lora_weights": "gaussian", "qalora_group_size": 16)"), "");
  EXPECT_THAT(refused(R"(, "init_lora_weights": "pissa_niter_4")"), HasSubstr("pissa_niter_4"));
  EXPECT_THAT(refused(R"(, "init_lora_weights": "olora")"), HasSubstr("init_lora_weights"));
  EXPECT_THAT(refused(R"(, "of_tomorrow": 3)"), HasSubstr("of_tomorrow"));
  EXPECT_THAT(refused(R"(, "use_dora": true)"), HasSubstr("use_dora"));
  EXPECT_THAT(refused(R"(, "rank_pattern": {"q_proj": 8})"), HasSubstr("rank_pattern"));
  EXPECT_THAT(refused(R"(, "bias": "all")"), HasSubstr("bias"));
  EXPECT_THAT(refused(R"(, "lora_alpha": -1)"), HasSubstr("alpha"));
  EXPECT_THAT(refused(R"(, "r": 1e9)"), HasSubstr("r"));
  EXPECT_THAT(refused(R"(, "target_modules": ".*")"), HasSubstr("target_modules"));
  EXPECT_THAT(refused(R"(, "peft_type": "IA3")"), HasSubstr("IA3"));
}

}  // namespace
}  // namespace atl::weights
