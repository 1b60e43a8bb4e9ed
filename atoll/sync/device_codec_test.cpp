// The tensor operations beside the codecs' own loops: on the CPU, on a stand-in for a GPU, and
// where there is a GPU, there too.
#include "atoll/sync/device_codec.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>

#include "atoll/testing/test_values.h"
#include "atoll/testing_torch/stand_in_device.h"

namespace atl::sync {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kDense = {"fp32", "bf16", "fp16", "int8", "int4", "e3m0"};

at::Tensor tensor_of(const std::vector<float>& values, at::Device device) {
  const auto size = static_cast<int64_t>(values.size());
  return at::from_blob(const_cast<float*>(values.data()), {size}, at::kFloat)
      .to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
}

/// Of all sizes, at the middle between two bfloat16s or two halves, or one bit beside it.
std::vector<float> ties(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto random = static_cast<uint32_t>(random_bits(11, count, i));
    const uint32_t dropped = i % 2 == 0 ? 0xffff : 0x1fff;  // Bits of the mantissa.
    const uint32_t near_middle = dropped / 2 + (random >> 1) % 3;
    values[i] = std::bit_cast<float>((random & ~dropped) | near_middle);
  }
  return values;
}

/// Multiples of half of a power of two, up to `parts` times it: in a block whose scale is that
/// power, each second one is a tie. Another power for each 64 values: largest values that are
/// subnormal, too small for a scale, and too large but for the last.
std::vector<float> multiples(size_t count, int parts) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto half = static_cast<int>(random_bits(12, count, i) % (4 * parts + 1)) - 2 * parts;
    const int power = static_cast<int>(i / 64 * 37 % 270) - 150;
    values[i] = std::ldexp(static_cast<float>(half) / 2, power);
  }
  return values;
}

/// Blocks whose largest value is one bit, or none, beside an edge: the smallest that has a scale,
/// or 127 times the middle between two bfloat16s. All of them take 130 * 3 blocks; in one, a
/// quotient by 127 and a product with its reciprocal have other scales.
std::vector<float> scale_edges(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto block = static_cast<uint32_t>(i / 256);
    const uint32_t mantissa = block / 3 % 130;
    const auto middle = std::bit_cast<float>(0x3f80'8000 + (mantissa << 16));
    const float edge = mantissa < 128 ? 127 * middle : 0x1p-118F;
    const auto largest = std::bit_cast<float>(std::bit_cast<uint32_t>(edge) + block % 3 - 1);
    const auto share = static_cast<float>(random_uniform(14, count, i) * 2 - 1);
    values[i] = i % 128 == 0 ? largest : largest * share;
  }
  return values;
}

/// Kinds 0 to 6 are draw_values'.
constexpr int kKinds = 12;
std::vector<float> values_of_kind(int kind, size_t count) {
  switch (kind) {
    case 7:
      return ties(count);
    case 8:
      return multiples(count, 127);
    case 9:
      return multiples(count, 8);
    case 10:
      return scale_edges(count);
    case 11:
      return std::vector<float>(count, -0.0F);
    default:
      return codec::draw_values(kind, count);
  }
}

/// What the codec would refuse becomes the largest value that it takes.
std::vector<float> acceptable(const codec::Codec& codec, std::vector<float> values) {
  for (float& value : values) {
    if (!(std::abs(value) <= codec.largest())) value = std::copysign(codec.largest(), value);
  }
  return values;
}

void expect_the_bytes_of(const codec::Codec& codec, const std::vector<float>& values,
                         at::Device device) {
  const at::Tensor values_N = tensor_of(values, device);
  ASSERT_TRUE(accepts(codec, values_N));
  Bytes ours = {std::byte{0xff}};  // Encodings are appended.
  encode(codec, values_N, ours, /*sequence=*/7);
  Bytes expected = {std::byte{0xff}};
  codec.encode(values, expected, 7);
  ASSERT_EQ(ours.size(), expected.size());
  const auto [differs, unlike] = std::ranges::mismatch(ours, expected);
  ASSERT_EQ(differs, ours.end()) << "from byte " << differs - ours.begin() << " on";
}

void expect_the_bytes_of_the_codecs(at::Device device) {
  for (const size_t count : {0, 1, 2, 7, 64, 127, 128, 129, 255, 256, 257, 1001, 100'000}) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const auto values = values_of_kind(kind, count);
      for (const std::string& name : kDense) {
        SCOPED_TRACE(fmt::format("{}, {} values of kind {}", name, count, kind));
        const auto codec = codec::make_codec(name);
        expect_the_bytes_of(*codec, acceptable(*codec, values), device);
      }
    }
  }
}

TEST(DeviceCodecTest, MakesTheBytesOfTheCodecs) { expect_the_bytes_of_the_codecs(at::kCPU); }

TEST(DeviceCodecTest, MakesThemWhereSubnormalNumbersAreFlushed) {
  if (!at::globalContext().setFlushDenormal(true)) GTEST_SKIP() << "not known to this processor";
  expect_the_bytes_of_the_codecs(at::kCPU);
  at::globalContext().setFlushDenormal(false);
}

TEST(DeviceCodecTest, MakesThemWithoutTheHostsMemory) {
  expect_the_bytes_of_the_codecs(model::stand_in::a_device());
}

/// Where the operations are tried, beside the CPU.
std::vector<at::Device> devices() { return {at::kCPU, model::stand_in::a_device()}; }

TEST(DeviceCodecTest, RefusesWhatTheCodecsRefuseInTheSameWords) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::string& name : kDense) {
    const auto codec = codec::make_codec(name);
    const float beyond = std::nextafter(codec->largest(), kInfinity);
    for (const float bad : {NAN, -NAN, kInfinity, -kInfinity, beyond, -beyond}) {
      std::vector<float> values(300, 1.0F);
      values[277] = bad;
      for (const at::Device device : devices()) {
        const at::Tensor values_N = tensor_of(values, device);
        EXPECT_FALSE(accepts(*codec, values_N));
        Bytes out = {std::byte{1}};
        const std::string message = message_of([&] { encode(*codec, values_N, out); });
        EXPECT_THAT(message, HasSubstr("value 277 is"));
        EXPECT_EQ(message, message_of([&] { codec->encode(values, out); }));
        EXPECT_EQ(out.size(), 1U);
      }
    }
  }
}

TEST(DeviceCodecTest, OtherCodecsEncodeOnTheHost) {
  const std::vector<float> values = codec::draw_values(0, 3000);
  for (const char* name : {"sign3", "stat2", "topk(0.2)+int4", "rolling(0.1)+bf16"}) {
    const auto codec = codec::make_codec(name);
    for (const at::Device device : devices()) {
      Bytes ours;
      encode(*codec, tensor_of(values, device), ours, 5);
      EXPECT_EQ(ours, codec::encoded(*codec, values, 5)) << name;
    }
  }
}

/// On a GPU the thread that encodes has a stream of its own, which must wait for the values.
TEST(DeviceCodecTest, ValuesOfARoundAreEncodedInPiecesByAnotherThread) {
  const auto codec = codec::make_codec("int4");
  const std::vector<float> values = codec::draw_values(0, 3'000'000);
  for (const at::Device device : devices()) {
    at::Tensor values_N = tensor_of(values, device);
    for (int i = 0; i < 50; ++i) values_N = values_N.neg();  // Work that may still be under way.
    const auto round = device_values(values_N, *codec);
    EXPECT_EQ(round.count, values.size());
    Bytes ours;
    std::jthread([&] { round.encode(700, 2'000'001, 9, ours); }).join();
    EXPECT_EQ(ours, codec::encoded(*codec, std::span(values).subspan(700, 2'000'001), 9));
  }
}

}  // namespace
}  // namespace atl::sync
