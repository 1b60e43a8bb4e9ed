// Model files as they come from others: right, truncated, edited, foreign. Every refusal must name
// the tensor or the key.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "atoll/base/bytes.h"
#include "atoll/base/file.h"
#include "atoll/testing/sample_models.h"
#include "atoll/testing/temporary_folder.h"
#include "atoll/weights/hf_folder.h"
#include "atoll/weights/model_files.h"
#include "atoll/weights/safetensors.h"

namespace atl::weights {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

class Files : public testing::Test {
 protected:
  /// A safetensors file with any header, right or wrong.
  fs::path write(const std::string& header, size_t data_bytes) const {
    ByteWriter writer;
    writer.put(static_cast<uint64_t>(header.size())).put_bytes(as_byte_span(header));
    writer.put_bytes(Bytes(data_bytes));
    const Bytes bytes = writer.take();
    const fs::path path = folder_ / "model.safetensors";
    write_file_synced(path, [&](const Append& append) { append(bytes); });
    return path;
  }
  std::string refusal(const std::string& header, size_t data_bytes) const {
    const fs::path path = write(header, data_bytes);
    return message_of([&] { SafetensorsFile file(path); });
  }
  TestFolder folder_;
};

std::vector<float> some_values(const ModelConfig& config) {
  std::vector<float> values(static_cast<size_t>(num_parameters(config)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.25F - 3;
  return values;
}

using SafetensorsTest = Files;

TEST_F(SafetensorsTest, WhatIsWrittenIsReadBack) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> b{7};
  const fs::path path = folder_ / "x.safetensors";
  write_safetensors(path,
                    std::vector<TensorView>{{"z", DType::kF32, {2, 3}, std::as_bytes(std::span(a))},
                                            {"b", DType::kI64, {}, std::as_bytes(std::span(b))},
                                            {"empty", DType::kF32, {0, 4}, {}}},
                    {{"format", "pt"}});
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 3U);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.at("z").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(file.at("z").bytes.data(), a.data(), 24), 0);
  EXPECT_EQ(file.at("b").type, DType::kI64);
  EXPECT_TRUE(file.at("empty").bytes.empty());
  EXPECT_EQ(file.find("y"), nullptr);
  EXPECT_THAT(message_of([&] { file.at("y"); }), HasSubstr("'y' is missing"));
}

TEST_F(SafetensorsTest, EachLieInTheHeaderIsRefusedByName) {
  const auto entry = [](const std::string& type, const std::string& shape,
                        const std::string& offsets) {
    return fmt::format(R"({{"w":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", type, shape,
                       offsets);
  };
  EXPECT_EQ(refusal(entry("F32", "[2]", "[0,8]"), 8), "");
  EXPECT_THAT(refusal(entry("F32", "[2]", "[0,8]"), 7),
              AllOf(HasSubstr("'w'"), HasSubstr("0 to 8")));
  EXPECT_THAT(refusal(entry("F32", "[3]", "[0,8]"), 8), HasSubstr("tensor 'w': its shape"));
  EXPECT_THAT(refusal(entry("F32", "[2]", "[8,0]"), 8), HasSubstr("'w'"));
  EXPECT_THAT(refusal(entry("F32", "[2]", "[0,-8]"), 8), HasSubstr("'w'"));
  EXPECT_THAT(refusal(entry("F32", "[2]", "[4,12]"), 12), HasSubstr("do not follow"));
  EXPECT_THAT(refusal(entry("F32", "[2]", "[0,8]"), 9), HasSubstr("1 bytes at the end"));
  EXPECT_THAT(refusal(entry("F31", "[2]", "[0,8]"), 8), HasSubstr("'F31'"));
  EXPECT_THAT(refusal(entry("F32", "[-2]", "[0,8]"), 8), HasSubstr("'w'"));
  EXPECT_THAT(refusal(entry("F32", "[4294967296,4294967296,4294967296]", "[0,8]"), 8),
              HasSubstr("too large"));
  EXPECT_THAT(refusal(entry("F32", "[2.5]", "[0,8]"), 8), HasSubstr("'w'"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"F32","shape":[2]}})", 8), HasSubstr("'data_offsets'"));
  EXPECT_THAT(refusal(R"({"w":5})", 8), HasSubstr("'w'"));
  EXPECT_THAT(refusal(R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                      R"("w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                      3),
              HasSubstr("'w': its bytes overlap"));
  const std::string twice = R"("w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_THAT(refusal("{" + twice + "," + twice + "}", 2), HasSubstr("'w' stands twice"));
  EXPECT_THAT(refusal(R"({"w":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,2]}})", 2),
              HasSubstr("'shape' stands twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":"1","a":"2"}})", 0), HasSubstr("'a' stands twice"));
  EXPECT_THAT(refusal("[1]", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{", 0), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(std::string(100'000, '['), 0), HasSubstr("not a JSON object"));
}

TEST_F(SafetensorsTest, FilesThatAreNoneAreRefused) {
  const fs::path path = folder_ / "x";
  std::ofstream(path) << "short";
  EXPECT_THAT(message_of([&] { SafetensorsFile file(path); }), HasSubstr("too short"));
  std::ofstream(path) << "PK and much more text than eight bytes";
  EXPECT_THAT(message_of([&] { SafetensorsFile file(path); }), HasSubstr("not a safetensors file"));
  std::ofstream(path) << "PK\x03\x04 and what archives have behind it";
  EXPECT_THAT(message_of([&] { SafetensorsFile file(path); }), HasSubstr("like a zip archive"));
  for (const char* const pickle : {"\x80\x02}q", "\x80\x04\x95 and much more than eight bytes"}) {
    std::ofstream(path) << pickle;
    EXPECT_THAT(message_of([&] { SafetensorsFile file(path); }), HasSubstr("like a pickle"));
  }
  EXPECT_THAT(message_of([&] { SafetensorsFile file(folder_ / "absent"); }), HasSubstr("absent"));
}

TEST(CopyAsF32Test, HalvesConvertExactly) {
  const std::vector<uint16_t> halves{0x0000, 0x8000, 0x3C00, 0xC000, 0x7BFF,
                                     0x0001, 0x03FF, 0x0400, 0x7C00, 0xFC00};
  const std::vector<float> wanted{0.0F,     -0.0F,      1.0F,     -2.0F,    65504.0F,
                                  0x1p-24F, 0x3FFp-24F, 0x1p-14F, INFINITY, -INFINITY};
  std::vector<float> found(halves.size());
  const auto bytes = std::as_bytes(std::span(halves));
  copy_as_f32({"h", DType::kF16, {10}, bytes}, found, "f");
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(wanted[i])) << i;
  }
  const std::vector<uint16_t> brains{0x3F80, 0xC049};
  copy_as_f32({"b", DType::kBF16, {2}, std::as_bytes(std::span(brains))}, std::span(found).first(2),
              "f");
  EXPECT_EQ(found[0], 1.0F);
  EXPECT_EQ(found[1], -3.140625F);
}

using HfFolderTest = Files;

TEST_F(HfFolderTest, EveryFamilyComesBackBitForBit) {
  for (const ModelConfig& config : varieties()) {
    SCOPED_TRACE(to_hf_config(config, {}));
    const std::vector<float> values = some_values(config);
    save_hf_model(folder_, config, {.ends = {3, 5}, .padding = 7}, values);
    const HfConfig found = load_hf_config(folder_);
    EXPECT_EQ(found.config, config);
    EXPECT_EQ(found.ids.ends, (std::vector<int64_t>{3, 5}));
    EXPECT_EQ(found.ids.padding, 7);
    EXPECT_FALSE(found.ids.begin_of_text.has_value());
    std::vector<float> loaded(values.size());
    ModelFiles(folder_, found.config).read(loaded);
    EXPECT_EQ(loaded, values);
  }
}

TEST_F(HfFolderTest, MismatchesNameTheTensor) {
  const ModelConfig config = tiny();
  const std::vector<float> values = some_values(config);
  save_hf_model(folder_, config, {}, values);
  std::vector<float> loaded(values.size() * 2);
  const auto load = [&](const ModelConfig& wanted) {
    loaded.resize(static_cast<size_t>(num_parameters(wanted)));
    return message_of([&] { ModelFiles(folder_, wanted).read(loaded); });
  };
  ModelConfig wider = config;
  wider.vocab_size = 12;
  EXPECT_THAT(load(wider), AllOf(HasSubstr("'model.embed_tokens.weight' has shape (11, 8)"),
                                 HasSubstr("(12, 8)")));
  ModelConfig deeper = config;
  deeper.num_layers = 3;
  EXPECT_THAT(load(deeper), AllOf(HasSubstr("'model.layers.2."), HasSubstr("is missing")));
  ModelConfig shallower = config;
  shallower.num_layers = 1;
  EXPECT_THAT(load(shallower), AllOf(HasSubstr("'model.layers.1."), HasSubstr("not part")));

  fs::resize_file(folder_ / "model.safetensors", fs::file_size(folder_ / "model.safetensors") - 4);
  EXPECT_THAT(load(config), AllOf(HasSubstr("'model.norm.weight'"), HasSubstr("truncated")));
  fs::remove(folder_ / "model.safetensors");
  EXPECT_THAT(load(config), HasSubstr("neither model.safetensors nor"));
  std::ofstream(folder_ / "model.safetensors.index.json")
      << R"({"weight_map":{"a":"../../etc/passwd"}})";
  EXPECT_THAT(load(config), HasSubstr("is not a name"));
}

TEST_F(HfFolderTest, ATiedHeadMustBeTheEmbedding) {
  ModelConfig config = tiny();
  config.tie_embeddings = false;
  std::vector<float> values = some_values(config);
  const size_t size = static_cast<size_t>(config.vocab_size * config.hidden_size);
  save_hf_model(folder_, config, {}, values);
  config.tie_embeddings = true;
  std::vector<float> loaded(static_cast<size_t>(num_parameters(config)));
  EXPECT_THAT(message_of([&] { ModelFiles(folder_, config).read(loaded); }),
              HasSubstr("tie_word_embeddings"));

  std::copy_n(values.begin(), size, values.end() - static_cast<ptrdiff_t>(size));
  config.tie_embeddings = false;
  save_hf_model(folder_, config, {}, values);
  config.tie_embeddings = true;
  ModelFiles(folder_, config).read(loaded);
  EXPECT_TRUE(std::equal(loaded.begin(), loaded.end(), values.begin()));
}

TEST_F(HfFolderTest, TheStoredTypeIsThatOfParametersAndHoldsAll) {
  const ModelConfig config = tiny();
  std::ofstream(folder_ / "config.json") << to_hf_config(config, {});
  const auto stored = [&](DType first, DType others) {
    std::vector<Bytes> contents;
    std::vector<TensorView> tensors;
    const auto add = [&](const std::string& name, DType type, std::vector<int64_t> shape) {
      int64_t size = static_cast<int64_t>(num_bytes(type));
      for (const int64_t length : shape) size *= length;
      contents.emplace_back(static_cast<size_t>(size));
      tensors.push_back({name, type, std::move(shape), contents.back()});
    };
    for (const ParameterSpec& spec : parameter_specs(config)) {
      add(spec.name, tensors.empty() ? first : others, spec.shape);
    }
    add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {4});  // No parameter.
    write_safetensors(folder_ / "model.safetensors", tensors, {});
    return ModelFiles(folder_, load_hf_config(folder_).config).common_type();
  };
  EXPECT_EQ(stored(DType::kBF16, DType::kBF16), DType::kBF16);
  EXPECT_EQ(stored(DType::kF16, DType::kF16), DType::kF16);
  EXPECT_EQ(stored(DType::kF16, DType::kBF16), DType::kF32);
  EXPECT_EQ(stored(DType::kF32, DType::kBF16), DType::kF32);
}

TEST_F(HfFolderTest, AFileWithoutItsPrefixAndWithMasksIsRead) {
  ModelConfig config = tiny();
  config.architecture = "gpt2";
  config.num_kv_heads = config.num_heads;
  const std::vector<float> values = some_values(config);
  std::ofstream(folder_ / "config.json") << to_hf_config(config, {});
  const Bytes mask(16 * 16);
  std::vector<TensorView> tensors;
  for (const ParameterSpec& spec : parameter_specs(config)) {
    const auto own =
        std::span(values).subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.size));
    const std::string prefix = "transformer.";
    EXPECT_TRUE(spec.name.starts_with(prefix)) << spec.name;
    tensors.push_back(
        {spec.name.substr(prefix.size()), DType::kF32, spec.shape, std::as_bytes(own)});
  }
  tensors.push_back({"h.0.attn.bias", DType::kBool, {1, 1, 16, 16}, mask});
  write_safetensors(folder_ / "model.safetensors", tensors, {});
  std::vector<float> loaded(values.size());
  ModelFiles(folder_, config).read(loaded);
  EXPECT_EQ(loaded, values);
  EXPECT_EQ(ModelFiles(folder_, load_hf_config(folder_).config).common_type(), DType::kF32);
  tensors.push_back(tensors.front());
  tensors.back().name = "transformer.wte.weight";
  write_safetensors(folder_ / "model.safetensors", tensors, {});
  EXPECT_THAT(message_of([&] { ModelFiles(folder_, config).read(loaded); }),
              HasSubstr("appears twice"));
}

TEST_F(HfFolderTest, PackedExpertsThatDoNotFitAreNamed) {
  ModelConfig config = tiny();
  config.architecture = "gpt_oss";
  config.hidden_size = 32;
  config.num_experts = 2;
  config.num_layers = 1;
  const std::vector<float> values(static_cast<size_t>(num_parameters(config)), 1);
  const std::string packed = "model.layers.0.mlp.experts.gate_up_proj";
  const Bytes bytes(2 * 24 * 16);
  const auto refusal = [&](const std::vector<TensorView>& of_experts) {
    std::vector<TensorView> tensors = of_experts;
    for (const ParameterSpec& spec : parameter_specs(config)) {
      if (spec.name == packed) continue;
      const auto own = std::span(values).first(static_cast<size_t>(spec.size));
      tensors.push_back({spec.name, DType::kF32, spec.shape, std::as_bytes(own)});
    }
    write_safetensors(folder_ / "model.safetensors", tensors, {});
    return message_of([&] { ModelFiles(folder_, config); });
  };
  const TensorView blocks{packed + "_blocks", DType::kU8, {2, 24, 1, 16}, bytes};
  const TensorView scales{packed + "_scales", DType::kU8, {2, 24, 1}, std::span(bytes).first(48)};
  EXPECT_EQ(refusal({blocks, scales}), "");
  EXPECT_THAT(refusal({blocks}), AllOf(HasSubstr(scales.name), HasSubstr("is missing")));
  TensorView other = scales;
  other.shape = {2, 12, 2};
  EXPECT_THAT(refusal({blocks, other}), AllOf(HasSubstr(scales.name), HasSubstr("(2, 24, 1)")));
  const TensorView down{"model.layers.0.mlp.experts.down_proj_scales", DType::kU8, {1}, bytes};
  EXPECT_THAT(refusal({blocks, scales, {down.name, DType::kU8, {1}, std::span(bytes).first(1)}}),
              HasSubstr("'model.layers.0.mlp.experts.down_proj"));
}

using ResolveModelTest = Files;

TEST_F(ResolveModelTest, FindsTheNewestCompleteCheckpoint) {
  const auto checkpoint = [&](const std::string& name) {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "config.json") << "{}";
  };
  EXPECT_THAT(message_of([&] { resolve_model(folder_); }), HasSubstr("neither a model"));
  EXPECT_THAT(message_of([&] { resolve_model(folder_ / "absent"); }),
              HasSubstr("neither a folder nor a GGUF file"));
  checkpoint("island-0/checkpoints/step-00000100");
  checkpoint("island-1/checkpoints/step-00000100");
  EXPECT_EQ(resolve_model(folder_), folder_ / "island-0/checkpoints/step-00000100");
  checkpoint("island-1/checkpoints/step-00000200");
  EXPECT_EQ(resolve_model(folder_), folder_ / "island-1/checkpoints/step-00000200");
  checkpoint("checkpoints/step-00000009");
  checkpoint("checkpoints/step-00000010");
  checkpoint("checkpoints/step-00000011.tmp");
  EXPECT_EQ(resolve_model(folder_), folder_ / "checkpoints/step-00000010");
  fs::create_directories(folder_ / "checkpoints/step-00000012");  // Damaged: it never was so.
  EXPECT_THAT(message_of([&] { resolve_model(folder_); }),
              AllOf(HasSubstr("step-00000012"), HasSubstr("config.json")));
  std::ofstream(folder_ / "config.json") << "{}";
  EXPECT_EQ(resolve_model(folder_), folder_);
}

}  // namespace
}  // namespace atl::weights
