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

ATOLL_INLINE uint8_t byte_at(const std::byte* block, size_t at) {
  return std::to_integer<uint8_t>(block[at]);
}
ATOLL_INLINE int8_t signed_at(const std::byte* block, size_t at) {
  return static_cast<int8_t>(block[at]);
}

ATOLL_INLINE float load_f16(const std::byte* from) { return half_to_float(load<uint16_t>(from)); }

// Each of these reads one block. Products and sums are rounded one by one, as NumPy's are.

/// Calls use(i, four bits of value i): of the first half of a block they are the lower ones.
template <typename Use>
ATOLL_INLINE void for_nibbles(const std::byte* packed, const Use& use) {
  for (size_t i = 0; i < kSmall / 2; ++i) use(i, byte_at(packed, i) & 15);
  for (size_t i = 0; i < kSmall / 2; ++i) use(i + kSmall / 2, byte_at(packed, i) >> 4);
}

ATOLL_INLINE void read_q4_0(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block);
  for_nibbles(block + 2, [&](size_t i, int bits) __attribute__((always_inline)) {
    values[i] = scale * static_cast<float>(bits - 8);
  });
}

ATOLL_INLINE void read_q4_1(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block);
  const float offset = load_f16(block + 2);
  for_nibbles(block + 4, [&](size_t i, int bits) __attribute__((always_inline)) {
    values[i] = scale * static_cast<float>(bits) + offset;
  });
}

/// The fifth bit of value i, which lies apart.
ATOLL_INLINE int fifth_bit(uint32_t fifths, size_t i) {
  return static_cast<int>((fifths >> i & 1) << 4);
}

ATOLL_INLINE void read_q5_0(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block);
  const auto fifths = load<uint32_t>(block + 2);
  for_nibbles(block + 6, [&](size_t i, int bits) __attribute__((always_inline)) {
    values[i] = scale * static_cast<float>((bits | fifth_bit(fifths, i)) - 16);
  });
}

ATOLL_INLINE void read_q5_1(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block);
  const float offset = load_f16(block + 2);
  const auto fifths = load<uint32_t>(block + 4);
  for_nibbles(block + 8, [&](size_t i, int bits) __attribute__((always_inline)) {
    values[i] = scale * static_cast<float>(bits | fifth_bit(fifths, i)) + offset;
  });
}

ATOLL_INLINE void read_q8_0(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block);
  for (size_t i = 0; i < kSmall; ++i) {
    values[i] = static_cast<float>(signed_at(block, 2 + i)) * scale;
  }
}

/// value * 2^(exponent - 128): by its bits where the scale is subnormal, which threads may flush.
ATOLL_INLINE float halved_power(int value, uint32_t exponent) {
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

ATOLL_INLINE void read_mxfp4(const std::byte* block, float* __restrict values) {
  // Floats of four bits, doubled; so the scale is halved. There is no negative zero.
  constexpr std::array kDoubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t exponent = byte_at(block, 0);
  for_nibbles(block + 1, [&](size_t i, int bits) {
    values[i] = halved_power(kDoubled[static_cast<size_t>(bits)], exponent);
  });
}

/// Four bits choose one of sixteen values, which lie closer together around zero.
constexpr std::array kUneven = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};

ATOLL_INLINE void read_uneven(float scale, const std::byte* packed, float* __restrict values) {
  for_nibbles(packed, [&](size_t i, int bits) __attribute__((always_inline)) {
    values[i] = scale * static_cast<float>(kUneven[static_cast<size_t>(bits)]);
  });
}

ATOLL_INLINE void read_iq4_nl(const std::byte* block, float* __restrict values) {
  read_uneven(load_f16(block), block + 2, values);
}

/// Each part of 32 has a scale of six bits: the four lower ones of all parts lie together, and so
/// do the two upper ones.
ATOLL_INLINE void read_iq4_xs(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block);
  const auto highs = load<uint16_t>(block + 2);
  for (size_t part = 0; part < kSuper / kSmall; ++part) {
    const int low = byte_at(block, 4 + part / 2) >> (part % 2 * 4) & 15;
    const int high = highs >> (part * 2) & 3;
    read_uneven(scale * static_cast<float>((low | high << 4) - 32), block + 8 + part * kSmall / 2,
                values + part * kSmall);
  }
}

// Types with scales for parts of a block: a loop over a part has nothing that changes with the
// value but where it lies, so that it runs on whole registers.

constexpr size_t kPart = 16;
constexpr size_t kNumParts = kSuper / kPart;

/// Where the bits of a part lie: from byte `at` on, shifted.
struct Bits {
  size_t at;
  unsigned shift;
};
/// Two bits each: 32 values share 32 bytes, four times, then come the next 32 bytes.
ATOLL_INLINE Bits two_bits(size_t part) {
  return {part / 8 * 32 + part % 2 * kPart, static_cast<unsigned>(part % 8 / 2 * 2)};
}

ATOLL_INLINE void read_q2_k(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block + 80);
  const float least = load_f16(block + 82);
  for (size_t part = 0; part < kNumParts; ++part) {
    const uint8_t both = byte_at(block, part);
    const float of_part = scale * static_cast<float>(both & 15);
    const float least_of_part = least * static_cast<float>(both >> 4);
    const auto [at, shift] = two_bits(part);
    for (size_t i = 0; i < kPart; ++i) {
      const int bits = byte_at(block, 16 + at + i) >> shift & 3;
      values[part * kPart + i] = of_part * static_cast<float>(bits) - least_of_part;
    }
  }
}

ATOLL_INLINE void read_q3_k(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block + 108);
  const std::byte* const scales = block + 96;
  for (size_t part = 0; part < kNumParts; ++part) {
    const int low = byte_at(scales, part % 8) >> (part / 8 * 4) & 15;
    const int high = byte_at(scales, 8 + part % 4) >> (part / 4 * 2) & 3;
    const float of_part = scale * static_cast<float>((low | high << 4) - 32);
    const auto [at, shift] = two_bits(part);
    for (size_t i = 0; i < kPart; ++i) {
      // Of the third bits all parts share 32 bytes. One that is set stands for no offset.
      const int third = byte_at(block, part % 2 * kPart + i) >> (part / 2) & 1;
      const int value = (byte_at(block, 32 + at + i) >> shift & 3) + 4 * third - 4;
      values[part * kPart + i] = of_part * static_cast<float>(value);
    }
  }
}

ATOLL_INLINE void read_q6_k(const std::byte* block, float* __restrict values) {
  const float scale = load_f16(block + 208);
  for (size_t part = 0; part < kNumParts; ++part) {
    const float of_part = scale * static_cast<float>(signed_at(block, 192 + part));
    // Four bits: 64 values, then 64 more in the upper halves of the same bytes.
    const size_t low_at = part / 8 * 64 + part % 4 * kPart;
    const auto low_shift = static_cast<unsigned>(part % 8 / 4 * 4);
    const auto [at, shift] = two_bits(part);
    for (size_t i = 0; i < kPart; ++i) {
      const int low = byte_at(block, low_at + i) >> low_shift & 15;
      const int high = byte_at(block, 128 + at + i) >> shift & 3;
      values[part * kPart + i] = of_part * static_cast<float>((low | high << 4) - 32);
    }
  }
}

struct ScaleAndLeast {
  int scale, least;
};

/// Six bits each, of part 0 to 7: the first four lie whole, of the others the upper two bits there.
ATOLL_INLINE ScaleAndLeast six_bits(const std::byte* packed, size_t part) {
  if (part < 4) return {byte_at(packed, part) & 63, byte_at(packed, part + 4) & 63};
  const uint8_t low = byte_at(packed, part + 4);
  return {(low & 15) | (byte_at(packed, part - 4) >> 2 & 48),
          low >> 4 | (byte_at(packed, part) >> 2 & 48)};
}

/// Parts of 32; their four lower bits lie in 32 bytes that two parts share. `fifths`: the fifth
/// bits of all parts, in 32 bytes, or null.
ATOLL_INLINE void read_scaled_parts(const std::byte* block, const std::byte* fifths,
                                    const std::byte* packed, float* __restrict values) {
  const float scale = load_f16(block);
  const float least = load_f16(block + 2);
  for (size_t part = 0; part < kSuper / kSmall; ++part) {
    const ScaleAndLeast both = six_bits(block + 4, part);
    const float of_part = scale * static_cast<float>(both.scale);
    const float least_of_part = least * static_cast<float>(both.least);
    const std::byte* const from = packed + part / 2 * kSmall;
    const auto shift = static_cast<unsigned>(part % 2 * 4);
    for (size_t i = 0; i < kSmall; ++i) {
      int bits = byte_at(from, i) >> shift & 15;
      if (fifths != nullptr) bits |= (byte_at(fifths, i) >> part & 1) << 4;
      values[part * kSmall + i] = of_part * static_cast<float>(bits) - least_of_part;
    }
  }
}

ATOLL_INLINE void read_q4_k(const std::byte* block, float* __restrict values) {
  read_scaled_parts(block, nullptr, block + 16, values);
}

ATOLL_INLINE void read_q5_k(const std::byte* block, float* __restrict values) {
  read_scaled_parts(block, block + 16, block + 48, values);
}

struct TypeRow {
  GgmlType type;
  GgmlBlock block;
};

constexpr std::array kTypes = {
    TypeRow{GgmlType::kF32, {"F32", 1, 4}},
    TypeRow{GgmlType::kF16, {"F16", 1, 2}},
    TypeRow{GgmlType::kBF16, {"BF16", 1, 2}},
    TypeRow{GgmlType::kQ4_0, {"Q4_0", kSmall, 18}},
    TypeRow{GgmlType::kQ4_1, {"Q4_1", kSmall, 20}},
    TypeRow{GgmlType::kQ5_0, {"Q5_0", kSmall, 22}},
    TypeRow{GgmlType::kQ5_1, {"Q5_1", kSmall, 24}},
    TypeRow{GgmlType::kQ8_0, {"Q8_0", kSmall, 34}},
    TypeRow{GgmlType::kQ2_K, {"Q2_K", kSuper, 84}},
    TypeRow{GgmlType::kQ3_K, {"Q3_K", kSuper, 110}},
    TypeRow{GgmlType::kQ4_K, {"Q4_K", kSuper, 144}},
    TypeRow{GgmlType::kQ5_K, {"Q5_K", kSuper, 176}},
    TypeRow{GgmlType::kQ6_K, {"Q6_K", kSuper, 210}},
    TypeRow{GgmlType::kIQ4_NL, {"IQ4_NL", kSmall, 18}},
    TypeRow{GgmlType::kIQ4_XS, {"IQ4_XS", kSuper, 136}},
    TypeRow{GgmlType::kMXFP4, {"MXFP4", kSmall, 17}},
};

template <void (*kRead)(const std::byte*, float*)>
ATOLL_INLINE void read_each(const GgmlBlock& block, const std::byte* blocks, size_t count,
                            float* values) {
  for (size_t i = 0; i < count; ++i) {
    kRead(blocks + i * block.num_bytes, values + i * block.num_values);
  }
}

/// One function, so that all of it is there once per instruction set.
ATOLL_CLONES void read_blocks(const TypeRow& row, const std::byte* blocks, size_t count,
                              float* values) {
  switch (row.type) {
    case GgmlType::kF32:
      if (count > 0) std::memcpy(values, blocks, count * sizeof(float));
      return;
    case GgmlType::kF16:
      for (size_t i = 0; i < count; ++i) values[i] = load_f16(blocks + 2 * i);
      return;
    case GgmlType::kBF16:
      for (size_t i = 0; i < count; ++i) values[i] = load_bf16(blocks + 2 * i);
      return;
    case GgmlType::kQ4_0:
      return read_each<read_q4_0>(row.block, blocks, count, values);
    case GgmlType::kQ4_1:
      return read_each<read_q4_1>(row.block, blocks, count, values);
    case GgmlType::kQ5_0:
      return read_each<read_q5_0>(row.block, blocks, count, values);
    case GgmlType::kQ5_1:
      return read_each<read_q5_1>(row.block, blocks, count, values);
    case GgmlType::kQ8_0:
      return read_each<read_q8_0>(row.block, blocks, count, values);
    case GgmlType::kQ2_K:
      return read_each<read_q2_k>(row.block, blocks, count, values);
    case GgmlType::kQ3_K:
      return read_each<read_q3_k>(row.block, blocks, count, values);
    case GgmlType::kQ4_K:
      return read_each<read_q4_k>(row.block, blocks, count, values);
    case GgmlType::kQ5_K:
      return read_each<read_q5_k>(row.block, blocks, count, values);
    case GgmlType::kQ6_K:
      return read_each<read_q6_k>(row.block, blocks, count, values);
    case GgmlType::kIQ4_NL:
      return read_each<read_iq4_nl>(row.block, blocks, count, values);
    case GgmlType::kIQ4_XS:
      return read_each<read_iq4_xs>(row.block, blocks, count, values);
    case GgmlType::kMXFP4:
      return read_each<read_mxfp4>(row.block, blocks, count, values);
  }
}

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
  read_blocks(row, blocks.data(), num_blocks, values.data());
}

}  // namespace atl::codec
