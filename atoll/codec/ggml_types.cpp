#include "atoll/codec/ggml_types.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

constexpr size_t kSmall = 32;   // Values of a block of the simple types,
constexpr size_t kSuper = 256;  // and of those with scales of their own for parts of it.

uint8_t byte_at(const std::byte* block, size_t at) { return std::to_integer<uint8_t>(block[at]); }
int8_t signed_at(const std::byte* block, size_t at) { return static_cast<int8_t>(block[at]); }

float load_f16(const std::byte* from) { return half_to_float(load<uint16_t>(from)); }

// Each reads one block. Products and sums are rounded one by one, as NumPy's are.

void read_f32(const std::byte* block, float* values) { std::memcpy(values, block, sizeof(float)); }
void read_f16(const std::byte* block, float* values) { *values = load_f16(block); }
void read_bf16(const std::byte* block, float* values) { *values = load_bf16(block); }

/// Four bits: of the first half of a block the lower ones.
uint8_t nibble(const std::byte* packed, size_t i) {
  return i < kSmall / 2 ? byte_at(packed, i) & 15 : byte_at(packed, i - kSmall / 2) >> 4;
}

void read_q4_0(const std::byte* block, float* values) {
  const float scale = load_f16(block);
  for (size_t i = 0; i < kSmall; ++i) {
    values[i] = scale * static_cast<float>(nibble(block + 2, i) - 8);
  }
}

void read_q4_1(const std::byte* block, float* values) {
  const float scale = load_f16(block);
  const float offset = load_f16(block + 2);
  for (size_t i = 0; i < kSmall; ++i) {
    values[i] = scale * static_cast<float>(nibble(block + 4, i)) + offset;
  }
}

/// Five bits, of which the fifth lies apart.
int five_bits(uint32_t fifths, const std::byte* packed, size_t i) {
  return nibble(packed, i) | static_cast<int>((fifths >> i & 1) << 4);
}

void read_q5_0(const std::byte* block, float* values) {
  const float scale = load_f16(block);
  const auto fifths = load<uint32_t>(block + 2);
  for (size_t i = 0; i < kSmall; ++i) {
    values[i] = scale * static_cast<float>(five_bits(fifths, block + 6, i) - 16);
  }
}

void read_q5_1(const std::byte* block, float* values) {
  const float scale = load_f16(block);
  const float offset = load_f16(block + 2);
  const auto fifths = load<uint32_t>(block + 4);
  for (size_t i = 0; i < kSmall; ++i) {
    values[i] = scale * static_cast<float>(five_bits(fifths, block + 8, i)) + offset;
  }
}

void read_q8_0(const std::byte* block, float* values) {
  const float scale = load_f16(block);
  for (size_t i = 0; i < kSmall; ++i) {
    values[i] = static_cast<float>(signed_at(block, 2 + i)) * scale;
  }
}

/// value * 2^(exponent - 128): by its bits where the scale is subnormal, which threads may flush.
float halved_power(int value, uint32_t exponent) {
  if (exponent >= 2) return static_cast<float>(value) * float_of((exponent - 1) << 23);
  const auto units = static_cast<uint32_t>(std::abs(value)) << (exponent + 21);  // Of 2^-149.
  const auto top = static_cast<uint32_t>(std::bit_width(units));
  constexpr uint32_t kFraction = 23;
  const uint32_t magnitude = top <= kFraction
                                 ? units
                                 : ((top - kFraction) << kFraction) |
                                       (units >> (top - kFraction - 1) & (kSmallestNormal - 1));
  return float_of(magnitude | (value < 0 ? kSignBit : 0));
}

void read_mxfp4(const std::byte* block, float* values) {
  // Floats of four bits, doubled; so the scale is halved. There is no negative zero.
  constexpr std::array kDoubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t exponent = byte_at(block, 0);
  for (size_t i = 0; i < kSmall; ++i) {
    values[i] = halved_power(kDoubled[nibble(block + 1, i)], exponent);
  }
}

/// Two bits of value i: 32 values share 32 bytes, four such parts 32 bytes, and so on.
uint8_t two_bits(const std::byte* packed, size_t i) {
  return byte_at(packed, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}
/// One bit: value i's lies in byte i modulo 32.
uint8_t one_bit(const std::byte* packed, size_t i) {
  return byte_at(packed, i % 32) >> (i / 32) & 1;
}
/// Four bits: 32 values, then 32 more in the upper halves of the same bytes.
uint8_t four_bits(const std::byte* packed, size_t i) {
  return byte_at(packed, i / 64 * 32 + i % 32) >> (i % 64 / 32 * 4) & 15;
}

void read_q2_k(const std::byte* block, float* values) {
  const float scale = load_f16(block + 80);
  const float least = load_f16(block + 82);
  for (size_t i = 0; i < kSuper; ++i) {
    const uint8_t both = byte_at(block, i / 16);
    const float of_part = scale * static_cast<float>(both & 15);
    const float least_of_part = least * static_cast<float>(both >> 4);
    values[i] = of_part * static_cast<float>(two_bits(block + 16, i)) - least_of_part;
  }
}

void read_q3_k(const std::byte* block, float* values) {
  const float scale = load_f16(block + 108);
  const std::byte* const scales = block + 96;
  for (size_t i = 0; i < kSuper; ++i) {
    const size_t part = i / 16;
    const int low = byte_at(scales, part % 8) >> (part / 8 * 4) & 15;
    const int high = byte_at(scales, 8 + part % 4) >> (part / 4 * 2) & 3;
    const float of_part = scale * static_cast<float>((low | high << 4) - 32);
    // A bit that is set stands for no offset.
    const int value = two_bits(block + 32, i) - (one_bit(block, i) != 0 ? 0 : 4);
    values[i] = of_part * static_cast<float>(value);
  }
}

struct ScaleAndLeast {
  int scale, least;
};

/// Six bits each, of part 0 to 7: the first four lie whole, of the others the upper two bits there.
ScaleAndLeast six_bits(const std::byte* packed, size_t part) {
  if (part < 4) return {byte_at(packed, part) & 63, byte_at(packed, part + 4) & 63};
  const uint8_t low = byte_at(packed, part + 4);
  return {(low & 15) | (byte_at(packed, part - 4) >> 2 & 48),
          low >> 4 | (byte_at(packed, part) >> 2 & 48)};
}

template <typename Value>
void read_scaled_parts(const std::byte* block, float* values, const Value& value_at) {
  const float scale = load_f16(block);
  const float least = load_f16(block + 2);
  for (size_t i = 0; i < kSuper; ++i) {
    const ScaleAndLeast part = six_bits(block + 4, i / 32);
    const float of_part = scale * static_cast<float>(part.scale);
    const float least_of_part = least * static_cast<float>(part.least);
    values[i] = of_part * static_cast<float>(value_at(i)) - least_of_part;
  }
}

void read_q4_k(const std::byte* block, float* values) {
  read_scaled_parts(block, values, [&](size_t i) { return four_bits(block + 16, i); });
}

void read_q5_k(const std::byte* block, float* values) {
  read_scaled_parts(block, values, [&](size_t i) {
    return four_bits(block + 48, i) | one_bit(block + 16, i) << 4;
  });
}

void read_q6_k(const std::byte* block, float* values) {
  const float scale = load_f16(block + 208);
  for (size_t i = 0; i < kSuper; ++i) {
    const float of_part = scale * static_cast<float>(signed_at(block, 192 + i / 16));
    const size_t low_at = i / 128 * 64 + i % 64;
    const int low = byte_at(block, low_at) >> (i % 128 / 64 * 4) & 15;
    const int value = (low | two_bits(block + 128, i) << 4) - 32;
    values[i] = of_part * static_cast<float>(value);
  }
}

struct TypeRow {
  GgmlType type;
  GgmlBlock block;
  void (*read)(const std::byte* block, float* values);
};

constexpr std::array kTypes = {
    TypeRow{GgmlType::kF32, {"F32", 1, 4}, read_f32},
    TypeRow{GgmlType::kF16, {"F16", 1, 2}, read_f16},
    TypeRow{GgmlType::kBF16, {"BF16", 1, 2}, read_bf16},
    TypeRow{GgmlType::kQ4_0, {"Q4_0", kSmall, 18}, read_q4_0},
    TypeRow{GgmlType::kQ4_1, {"Q4_1", kSmall, 20}, read_q4_1},
    TypeRow{GgmlType::kQ5_0, {"Q5_0", kSmall, 22}, read_q5_0},
    TypeRow{GgmlType::kQ5_1, {"Q5_1", kSmall, 24}, read_q5_1},
    TypeRow{GgmlType::kQ8_0, {"Q8_0", kSmall, 34}, read_q8_0},
    TypeRow{GgmlType::kQ2_K, {"Q2_K", kSuper, 84}, read_q2_k},
    TypeRow{GgmlType::kQ3_K, {"Q3_K", kSuper, 110}, read_q3_k},
    TypeRow{GgmlType::kQ4_K, {"Q4_K", kSuper, 144}, read_q4_k},
    TypeRow{GgmlType::kQ5_K, {"Q5_K", kSuper, 176}, read_q5_k},
    TypeRow{GgmlType::kQ6_K, {"Q6_K", kSuper, 210}, read_q6_k},
    TypeRow{GgmlType::kMXFP4, {"MXFP4", kSmall, 17}, read_mxfp4},
};

const TypeRow& row_of(GgmlType type) {
  const auto found = std::ranges::find(kTypes, type, &TypeRow::type);
  ATOLL_CHECK(found != kTypes.end());
  return *found;
}

}  // namespace

std::optional<GgmlType> ggml_type(uint32_t number) {
  const auto type = static_cast<GgmlType>(number);
  const auto found = std::ranges::find(kTypes, type, &TypeRow::type);
  if (found == kTypes.end()) return {};
  return type;
}

GgmlBlock ggml_block(GgmlType type) { return row_of(type).block; }

void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> values) {
  const TypeRow& row = row_of(type);
  const size_t num_blocks = blocks.size() / row.block.num_bytes;
  ATOLL_CHECK(blocks.size() == num_blocks * row.block.num_bytes);
  ATOLL_CHECK(values.size() == num_blocks * row.block.num_values);
  for (size_t i = 0; i < num_blocks; ++i) {
    row.read(blocks.data() + i * row.block.num_bytes, values.data() + i * row.block.num_values);
  }
}

}  // namespace atl::codec
