#include "atoll/codec/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "atoll/base/bytes.h"
#include "atoll/codec/ggml_quantize.h"
#include "atoll/testing/sample_gguf.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::codec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::string& bytes) {
  return message_of([&] { parse_gguf(as_byte_span(bytes), "x.gguf"); });
}
std::string error_with(const SampleGguf::Tensor& tensor) {
  SampleGguf writer = sample_gguf();
  writer.tensor(tensor);
  return error_of(writer.file());
}

TEST(GgufFileTest, GivesValuesAndTensors) {
  const TestFolder folder;
  const GgufFile file(folder.write("x.gguf", sample_gguf().file()));
  EXPECT_TRUE(GgufFile::is_one(file.path()));
  EXPECT_FALSE(GgufFile::is_one(folder));
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.whole("llama.block_count"), 2);
  EXPECT_EQ(file.real("llama.rope.freq_base"), 10000);
  EXPECT_EQ(file.whole("llama.nothing"), std::nullopt);
  EXPECT_THAT(file.list("tokenizer.ggml.tokens")->texts, ElementsAre("a", "b"));
  EXPECT_THAT(file.list("tokenizer.ggml.token_type")->numbers, ElementsAre(1, 3));
  EXPECT_EQ(file.flag("tokenizer.ggml.add_bos_token"), true);
  EXPECT_THAT(file.list("tokenizer.ggml.scores")->numbers, ElementsAre(-1, -2.5));
  EXPECT_THAT(file.list("tokenizer.ggml.precompiled_charsmap")->numbers, ElementsAre(255, 1));
  EXPECT_THAT(message_of([&] { file.text("llama.block_count"); }),
              HasSubstr("'llama.block_count' is of another kind"));
  ASSERT_NE(file.find("token_embd.weight"), nullptr);
  EXPECT_THAT(file.find("token_embd.weight")->shape, ElementsAre(2, 32));
  EXPECT_EQ(file.find("output_norm.weight")->bytes.size(), 12U);
}

TEST(GgufFileTest, EveryBeginningOfOneIsRefused) {
  const std::string whole = sample_gguf().file();
  ASSERT_EQ(error_of(whole), "");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(error_of(whole.substr(0, size)), HasSubstr("'x.gguf' ")) << size;
  }
}

TEST(GgufFileTest, NamesWhatIsBroken) {
  std::string many = sample_gguf().file();
  many[15] = '\x10';  // 2^60 tensors.
  EXPECT_THAT(error_of(many),
              HasSubstr("says that it has 1152921504606846978 tensors, for which it is too short"));
  many = sample_gguf().file();
  many[23] = '\x10';
  EXPECT_THAT(error_of(many), HasSubstr("values, for which it is too short"));
  EXPECT_THAT(error_with({"t", {uint64_t{1} << 60}, 0, ""}), HasSubstr("with a length of"));
  EXPECT_THAT(error_with({"t", {uint64_t{1} << 39, uint64_t{1} << 39}, 0, ""}),
              HasSubstr("is too short for the tensor 't'"));
  EXPECT_THAT(error_with({"t", {32}, 4, ""}), HasSubstr("the tensor 't' of type 4"));
  EXPECT_THAT(error_with({"t", {33}, 8, std::string(68, ' ')}),
              HasSubstr("not a multiple of 32 (Q8_0)"));
  EXPECT_THAT(error_with({"t", {1, 1, 1, 1, 1}, 0, "    "}), HasSubstr("with 5 dimensions"));
  EXPECT_THAT(error_with({"t", {}, 8, std::string(34, ' ')}), HasSubstr("with 0 dimensions"));
  EXPECT_THAT(error_with({"output_norm.weight", {1}, 0, "    "}),
              HasSubstr("has the tensor 'output_norm.weight' twice"));
  EXPECT_THAT(error_of("GGML"), HasSubstr("is no GGUF file"));
  std::string version = sample_gguf().file();
  version[4] = 1;
  EXPECT_THAT(error_of(version), HasSubstr("has version 1"));
  // The second tensor's place becomes the first one's.
  std::string over = sample_gguf().file();
  const size_t name = over.find("output_norm.weight");
  over[name + 18 + 4 + 8 + 4] = 0;
  EXPECT_THAT(
      error_of(over),
      HasSubstr("has the tensors 'output_norm.weight' and 'token_embd.weight' over one another"));
}

TEST(GgmlTypesTest, BlocksHaveTheirValues) {
  EXPECT_EQ(ggml_type(4), std::nullopt);
  std::vector<float> values(32);
  dequantize(GgmlType::kQ8_0,
             as_byte_span(std::string("\0\x3c", 2) + std::string(31, '\xff') + "\x07"), values);
  EXPECT_EQ(values.front(), -1);
  EXPECT_EQ(values.back(), 7);
  dequantize(GgmlType::kQ4_0, as_byte_span(std::string("\0\x3c\x29", 3) + std::string(15, '\x88')),
             values);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[16], -6) << "the upper four bits are of the second half";
  dequantize(GgmlType::kIQ4_NL,
             as_byte_span(std::string("\0\x3c\x29", 3) + std::string(15, '\xf0')), values);
  EXPECT_EQ(values[0], 13);
  EXPECT_EQ(values[16], -83);
  EXPECT_EQ(values[1], -127);
  EXPECT_EQ(values[17], 113);
  // Part 0 has the scale 0 - 32, part 1 has 1 + 2 * 16 - 32.
  std::vector<float> many(256);
  dequantize(GgmlType::kIQ4_XS,
             as_byte_span(std::string("\0\x3c\x08\0\x10\0\0\0", 8) + std::string(16, '\x98') +
                          std::string(112, '\x7f')),
             many);
  EXPECT_EQ(many[0], -32);
  EXPECT_EQ(many[16], -32 * 13);
  EXPECT_EQ(many[32], 113);
  EXPECT_EQ(many[48], -10);
}

TEST(GgmlQuantizeTest, LevelsComeBackAsTheyAre) {
  std::vector<float> values(64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 16) - 8;
  values[16 + 9] = 127;
  values[32] = -127;
  std::vector<float> found(values.size());
  dequantize(GgmlType::kQ8_0, quantize(GgmlType::kQ8_0, values), found);
  EXPECT_EQ(found, values);
  values[16 + 9] = 1;
  values[32] = -8;
  dequantize(GgmlType::kQ4_0, quantize(GgmlType::kQ4_0, values), found);
  EXPECT_EQ(found, values);
}

TEST(GgmlQuantizeTest, WhatIsNotFiniteSpoilsItsBlock) {
  for (const float lost : {std::nanf(""), -std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    std::vector<float> values(32, 1.0F);
    values[5] = lost;
    for (const GgmlType type : {GgmlType::kQ8_0, GgmlType::kQ4_0}) {
      const Bytes bytes = quantize(type, values);
      std::vector<float> back(values.size());
      dequantize(type, bytes, back);
      for (const float value : back) EXPECT_TRUE(std::isnan(value));
    }
  }
}

}  // namespace
}  // namespace atl::codec
