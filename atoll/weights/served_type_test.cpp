// Layers in fewer bits: which tensors, and that each is what its values are in blocks.
#include "atoll/weights/served_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "atoll/base/error.h"
#include "atoll/codec/ggml_quantize.h"
#include "atoll/testing/sample_models.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_manifest.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using codec::GgmlType;
using ::testing::ElementsAre;

/// Whose inputs are whole blocks.
ModelConfig wide(ModelConfig config) {
  config.hidden_size = 64;
  config.intermediate_size = 96;
  if (config.head_dim != 0) config.head_dim = 32;
  config.rope_short_factors = config.rope_long_factors = "";
  return config;
}

std::shared_ptr<const ModelFiles> saved(const fs::path& folder, const ModelConfig& config,
                                        DType type) {
  std::vector<float> values(static_cast<size_t>(num_parameters(config)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i * 7919 % 1009) / 512 - 1;
  }
  fs::create_directories(folder);
  save_hf_model(folder, config, {}, values, {.type = type});
  return std::make_shared<const ModelFiles>(folder, config);
}

std::vector<float> values_of(const StoredTensor& tensor, const ParameterSpec& spec) {
  std::vector<float> values;
  const std::vector<ParameterSpec> parts = spec.parts();
  for (int64_t i = 0; i < std::ssize(parts); ++i) {
    std::vector<float> part(static_cast<size_t>(parts.front().size));
    tensor.part(i, std::ssize(parts)).read_all(/*has_inputs_first=*/false, part);
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

TEST(ServedTypeTest, Names) {
  EXPECT_THAT(names_of(ServedType()), ElementsAre("auto", "bf16", "int8", "int4"));
  EXPECT_THAT(names_of(KvType()), ElementsAre("auto", "fp32", "bf16"));
  EXPECT_EQ(ServedAs::of_options("int8", "auto"), ServedAs{ServedType::kInt8});
  EXPECT_THROW(ServedAs::of_options("fp8", "auto"), UsageError);
  EXPECT_THROW(ServedAs::of_options("auto", "int8"), UsageError);
  EXPECT_EQ(ServedAs::parse(""), ServedAs());
  EXPECT_EQ(ServedAs::parse("int8"), ServedAs{ServedType::kInt8});
  EXPECT_EQ(ServedAs::parse("kv-fp32"), (ServedAs{ServedType::kAuto, KvType::kFp32}));
  EXPECT_EQ(ServedAs::parse("int8+kv-bf16"), (ServedAs{ServedType::kInt8, KvType::kBf16}));
  for (const char* const unknown : {"fp8", "kv-", "kv-int8", "int8+kv", "int8+x"}) {
    EXPECT_EQ(ServedAs::parse(unknown), std::nullopt) << unknown;
  }
}

TEST(ServedTypeTest, MatricesOfTheLayersHaveTheirValuesInBlocks) {
  for (const ModelConfig& variety : varieties()) {
    if (!variety.rope_short_factors.empty()) continue;
    const ModelConfig config = wide(variety);
    const TestFolder folder;
    const auto files = saved(folder / "model", config, DType::kF32);
    const std::vector<ParameterSpec> specs = parameter_specs(config);
    for (const auto& [type, block] : {std::pair(ServedType::kBf16, GgmlType::kBF16),
                                      std::pair(ServedType::kInt8, GgmlType::kQ8_0),
                                      std::pair(ServedType::kInt4, GgmlType::kQ4_0)}) {
      const auto served = as_served(config, files, {type}, 1, config.num_layers, 3);
      for (size_t i = 0; i < specs.size(); ++i) {
        const StoredTensor& before = files->tensors()[i];
        const StoredTensor& after = served->tensors()[i];
        const bool is_layers_matrix = specs[i].layer >= 1 && specs[i].shape.size() > 1 &&
                                      specs[i].role != Role::kRouter && !specs[i].is_bias();
        const std::string what = config.architecture + " " + specs[i].name;
        EXPECT_EQ(after.type, is_layers_matrix ? block : GgmlType::kF32) << what;
        if (!is_layers_matrix) {
          EXPECT_EQ(after.bytes.data(), before.bytes.data()) << what;
          continue;
        }
        EXPECT_EQ(after.bytes.size(), num_bytes(as_served(before, specs[i], type))) << what;
        std::vector<float> wanted = values_of(before, specs[i]);
        codec::dequantize(block, codec::quantize(block, wanted), wanted);
        EXPECT_EQ(values_of(after, specs[i]), wanted) << what;
      }
    }
  }
}

TEST(ServedTypeTest, WhatIsAsSmallAlreadyStays) {
  const TestFolder folder;
  const ModelConfig config = wide(tiny());
  const auto files = saved(folder / "model", config, DType::kBF16);
  const auto& tensors = files->tensors();
  EXPECT_EQ(as_served(config, files, {}, 0, 2, 1), files);
  EXPECT_EQ(digest_as_served("ab", config, tensors, {}), "ab");
  EXPECT_EQ(digest_as_served("ab", config, tensors, {ServedType::kBf16}), "ab");
  EXPECT_EQ(digest_as_served("ab", config, tensors, {ServedType::kInt8}), "ab+int8");
  const auto int4 = as_served(config, files, {ServedType::kInt4}, 0, 2, 1);
  EXPECT_EQ(digest_as_served("ab", config, int4->tensors(), {ServedType::kInt8}), "ab");
  const auto again = as_served(config, int4, {ServedType::kInt8}, 0, 2, 1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(again->tensors()[i].bytes.data(), int4->tensors()[i].bytes.data());
  }
}

TEST(ServedTypeTest, KeysAndValuesAreNarrowWhereWhatMakesThemIs) {
  const TestFolder folder;
  const ModelConfig config = wide(tiny());
  const auto narrow = saved(folder / "narrow", config, DType::kBF16);
  const auto wide = saved(folder / "wide", config, DType::kF32);
  EXPECT_TRUE(keeps_narrow_kv(config, narrow->tensors(), {}));
  EXPECT_FALSE(keeps_narrow_kv(config, wide->tensors(), {}));
  EXPECT_TRUE(keeps_narrow_kv(config, wide->tensors(), {ServedType::kInt8}));
  const ServedAs other{.kv = KvType::kFp32};
  EXPECT_FALSE(keeps_narrow_kv(config, narrow->tensors(), other));
  EXPECT_EQ(digest_as_served("ab", config, narrow->tensors(), other), "ab+kv-fp32");
  EXPECT_EQ(digest_as_served("ab", config, wide->tensors(), other), "ab");
  EXPECT_EQ(digest_as_served("ab", config, wide->tensors(), {ServedType::kInt8, KvType::kFp32}),
            "ab+int8+kv-fp32");
  const auto served = as_served(config, narrow, other, 0, 2, 1);
  EXPECT_EQ(served->kv_type(), KvType::kFp32);
  EXPECT_EQ(served->tensors()[0].bytes.data(), narrow->tensors()[0].bytes.data());
}

TEST(ServedTypeTest, InputsThatAreNoWholeBlocksStayAsStored) {
  const TestFolder folder;
  const ModelConfig config = tiny();  // Of 8 and 12.
  const auto files = saved(folder / "model", config, DType::kF32);
  EXPECT_EQ(digest_as_served("ab", config, files->tensors(), {ServedType::kInt8}), "ab");
  EXPECT_EQ(digest_as_served("ab", config, files->tensors(), {ServedType::kBf16}), "ab+bf16");
}

}  // namespace
}  // namespace atl::weights
