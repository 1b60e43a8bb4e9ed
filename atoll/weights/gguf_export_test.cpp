// Models written as GGUF files and read again; tests/oracle/gguf_write_oracle.py has what PyPI
// `gguf` and transformers read in them.
#include "atoll/weights/gguf_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "atoll/base/bytes.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/weights/families.h"
#include "atoll/weights/gguf_layout.h"
#include "atoll/weights/gguf_model.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_parts.h"
#include "atoll/weights/part_store.h"

namespace atl::weights {
namespace {

using codec::GgmlType;
using ::testing::HasSubstr;

ModelConfig small(const std::string& family) {
  ModelConfig config{.architecture = family,
                     .vocab_size = 11,
                     .hidden_size = 32,
                     .intermediate_size = 64,
                     .num_layers = 2,
                     .num_heads = 4,
                     .num_kv_heads = 4,
                     .max_positions = 64,
                     .tie_embeddings = false};
  if (family == "gpt_neox") {
    config.attention_bias = true;
    config.partial_rotary_factor = 0.25;
    config.parallel_residual = false;
  }
  if (family == "gpt2") config.activation = "gelu_tanh";
  if (find_family(family)->has("num_experts")) config.num_experts = 3;
  if (family == "olmoe") config.router_normalises = false;
  if (family.starts_with("gemma")) config.sliding_window = 5;
  if (family == "gemma2") {
    config.attention_softcap = 50;
    config.logits_softcap = 30;
  }
  if (find_family(family)->has("layer_pattern")) {
    config.num_layers = 7;
    config.layer_pattern = gguf_layer_pattern(config, gguf_architecture_of(config));
  }
  return config;
}

class GgufExportTest : public ::testing::Test {
 protected:
  /// A folder with the values 0, 1, 2 ...
  ModelFiles files(const ModelConfig& config) {
    const auto folder = folder_.path() / config.architecture;
    std::filesystem::create_directories(folder);
    values_.resize(static_cast<size_t>(num_parameters(config)));
    std::iota(values_.begin(), values_.end(), first_);
    save_hf_model(folder, config, {}, values_);
    return {folder, config};
  }
  std::filesystem::path written(const ModelConfig& config, GgmlType type) {
    const std::vector<GgufPart> parts = gguf_parts(config, type);
    codec::GgufWriter head;
    put_gguf_settings(head, config, "a name", type);
    put_gguf_tensors(head, config, parts);
    std::string bytes = head.head();
    for_each_tensor(files(config), config, parts, [&](std::span<const std::byte> more) {
      bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
    });
    return folder_.write(config.architecture + ".gguf", bytes);
  }
  std::string error_of(const ModelConfig& config) {
    return message_of([&] { written(config, GgmlType::kF16); });
  }

  TestFolder folder_;
  std::vector<float> values_;
  float first_ = 0;
};

TEST(RowOrderTest, GoesThereAndBack) {
  for (const RowOrder order :
       {RowOrder{}, RowOrder{.outer = 2, .inner = 4}, RowOrder{.outer = 4, .inner = 3, .run = 2}}) {
    std::vector<bool> seen(48);
    for (int64_t row = 0; row < 48; ++row) {
      const int64_t place = order.place_of(row);
      EXPECT_EQ(order.back().place_of(place), row);
      seen[static_cast<size_t>(place)] = true;
    }
    EXPECT_EQ(std::ranges::count(seen, true), 48);
  }
  const RowOrder by_head{.outer = 4, .inner = 3, .run = 2};
  EXPECT_EQ(by_head.place_of(6), 2) << "the second head's query is behind the first one's";
  EXPECT_EQ(by_head.place_of(2), 8) << "keys are behind all queries";
}

TEST_F(GgufExportTest, EveryFamilyComesBack) {
  for (const GgufArchitecture& one : kGgufArchitectures) {
    const ModelConfig config = small(std::string(one.family));
    const auto path = written(config, GgmlType::kF32);
    const ModelConfig found = load_hf_config(path).config;
    EXPECT_EQ(found, as_gguf_says(config)) << one.family;
    std::vector<float> again(values_.size());
    ModelFiles(path, found).read(again);
    EXPECT_EQ(again, values_) << one.family;
  }
}

TEST_F(GgufExportTest, OtherMachinesGetTheSameTensorsByTheManifest) {
  for (const GgufArchitecture& one : kGgufArchitectures) {
    const auto path = written(small(std::string(one.family)), GgmlType::kQ8_0);
    const ModelConfig config = load_hf_config(path).config;
    const auto files = std::make_shared<const ModelFiles>(path, config);
    const ModelParts parts(config, files, 1);
    PartStore store(folder_ / (std::string(one.family) + "-cache"),
                    decode_manifest(encode(parts.manifest())));
    std::vector<int32_t> all;
    for (int32_t part = 0; part < store.manifest().num_parts(); ++part) {
      store.keep_hashes(part, parts.hashes(part).value());
      for (const uint32_t piece : store.missing(part)) {
        store.write(part, piece, parts.piece(part, piece).value());
      }
      store.finish(part);
      all.push_back(part);
    }
    std::vector<float> wanted(static_cast<size_t>(num_parameters(config)));
    std::vector<float> fetched(wanted.size());
    files->read(wanted);
    store.files(all)->read(fetched);
    EXPECT_EQ(fetched, wanted) << one.family;
  }
}

TEST_F(GgufExportTest, SettingsThatNotAllHaveComeBack) {
  ModelConfig mistral = small("mistral");
  mistral.sliding_window = 5;
  ModelConfig linear = small("llama");
  linear.rope_type = "linear";
  linear.rope_factor = 2.5;
  linear.rope_theta = 123'456;
  linear.head_dim = 16;
  linear.attention_bias = true;
  linear.mlp_bias = true;
  ModelConfig llama3 = small("llama");
  llama3.head_dim = 32;
  llama3.rope_type = "llama3";
  llama3.rope_theta = 500'000;
  llama3.rope_factor = 8;
  llama3.rope_original_positions = 4096;
  ModelConfig tied = small("gpt_neox");
  tied.tie_embeddings = true;
  tied.activation = "gelu_tanh";
  ModelConfig joined = small("phi3");
  joined.sliding_window = 9;
  joined.partial_rotary_factor = 0.5;
  ModelConfig clipped = small("olmo");
  clipped.clip_qkv = 8;
  ModelConfig granite = small("granite");
  granite.embedding_multiplier = 12;
  granite.residual_multiplier = 0.22;
  granite.attention_multiplier = 0.015625;
  granite.logits_divisor = 8;
  granite.mlp_bias = true;
  ModelConfig capped = small("gemma2");
  capped.attention_softcap = 7.5;
  capped.logits_softcap = 0.3;
  ModelConfig wide = small("gemma3_text");  // Of as many layers as the 27B model.
  wide.num_layers = 62;
  wide.layer_pattern = "sssssf";
  wide.head_dim = 16;
  wide.attention_multiplier = 1 / std::sqrt(8.0);
  wide.rope_local_theta = 20'000;
  wide.rope_theta = 1'000'000;
  wide.rope_type = "linear";
  wide.rope_factor = 8;
  for (const ModelConfig& config :
       {mistral, linear, llama3, tied, joined, clipped, granite, capped, wide}) {
    const auto path = written(config, GgmlType::kF32);
    EXPECT_EQ(load_hf_config(path).config, as_gguf_says(config)) << config.architecture;
    EXPECT_EQ(
        num_changed(files(config), ModelFiles(path, config), gguf_parts(config, GgmlType::kF32)),
        0);
  }
  ModelConfig full = small("mistral");
  EXPECT_EQ(load_hf_config(written(full, GgmlType::kF32)).config.architecture, "llama");
}

TEST_F(GgufExportTest, ATiedHeadIsThereAgainWhereItIsNeeded) {
  ModelConfig config = small("gpt_neox");
  config.tie_embeddings = true;
  const codec::GgufFile file(written(config, GgmlType::kF16));
  ASSERT_NE(file.find("output.weight"), nullptr);
  config = small("llama");
  config.tie_embeddings = true;
  EXPECT_EQ(codec::GgufFile(written(config, GgmlType::kF16)).find("output.weight"), nullptr);
}

TEST_F(GgufExportTest, RowsThatAreNoWholeBlocksAreF16) {
  ModelConfig config = small("llama");
  config.intermediate_size = 40;
  const std::vector<GgufPart> parts = gguf_parts(config, GgmlType::kQ8_0);
  EXPECT_EQ(num_narrow(parts, GgmlType::kQ8_0), 2) << "of each layer the way back from the MLP";
  const auto path = written(config, GgmlType::kQ8_0);
  const codec::GgufFile file(path);
  EXPECT_EQ(file.find("blk.0.ffn_down.weight")->type, GgmlType::kF16);
  EXPECT_EQ(file.find("blk.0.ffn_up.weight")->type, GgmlType::kQ8_0);
  EXPECT_EQ(file.find("output_norm.weight")->type, GgmlType::kF32);
  EXPECT_EQ(file.whole("general.file_type"), 7);
  EXPECT_EQ(num_changed(files(config), ModelFiles(path, config), parts), 0);
}

TEST_F(GgufExportTest, NamesWhatSuchFilesCannotSay) {
  ModelConfig config = small("llama");
  config.rope_type = "dynamic";
  config.rope_factor = 2;
  EXPECT_THAT(error_of(config), HasSubstr("cannot have dynamic scaling of positions"));
  config = small("qwen2");
  config.sliding_window = 4;
  EXPECT_THAT(error_of(config), HasSubstr("cannot have windows"));
  config = small("gpt_neox");
  config.attention_bias = false;
  EXPECT_THAT(error_of(config), HasSubstr("cannot have no biases in attention"));
  config = small("gpt2");
  config.activation = "gelu";
  EXPECT_THAT(error_of(config), HasSubstr("cannot have 'activation' gelu"));
  config = small("smollm3");
  config.layer_pattern = "ffn";
  EXPECT_THAT(error_of(config), HasSubstr("cannot have layers in this order"));
  config = small("smollm3");
  config.mlp_bias = true;
  EXPECT_THAT(error_of(config), HasSubstr("cannot have biases in the MLP"));
  config = small("gemma3_text");
  config.attention_multiplier = 0.25;
  EXPECT_THAT(error_of(config), HasSubstr("divided by another number"));
  config = small("gemma3_text");
  config.logits_softcap = 30;
  EXPECT_THAT(error_of(config), HasSubstr("cannot have 'attention_softcap' 0 and"));
  config = small("olmoe");
  config.clip_qkv = 8;
  EXPECT_THAT(error_of(config), HasSubstr("cannot have clipped queries"));
  first_ = 70'000;
  EXPECT_THAT(error_of(small("llama")),
              HasSubstr("has values that F16 cannot hold; use --type bf16"));
}

}  // namespace
}  // namespace atl::weights
