#pragma once
// Values for the codecs' tests, and what the stated error means.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "atoll/base/random.h"
#include "atoll/codec/codec.h"
#include "atoll/testing/temporary_folder.h"

namespace atl::codec {

inline Bytes encoded(const Codec& codec, std::span<const float> values, uint32_t sequence = 0) {
  Bytes bytes;
  codec.encode(values, bytes, sequence);
  return bytes;
}

inline std::vector<float> decoded(const Codec& codec, std::span<const std::byte> bytes,
                                  size_t count, uint32_t sequence = 0) {
  std::vector<float> values(count, 42.0F);
  codec.decode(bytes, values, sequence);
  return values;
}

/// A float of any bit pattern below 2^127: all exponents, subnormals too.
inline float any_float(uint64_t random) {
  const auto value = std::bit_cast<float>(static_cast<uint32_t>(random));
  return std::abs(value) < 0x1p127F ? value : 0.1F;
}

/// Kinds of values that lie near to what can go wrong.
inline std::vector<float> draw_values(int kind, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t random = random_bits(7, count, i);
    const auto normal = static_cast<float>(random_normal(8, count, i));
    switch (kind) {
      case 0:
        values[i] = normal;
        break;
      case 1:
        values[i] = any_float(random);
        break;
      case 2:
        values[i] = 0;
        break;
      case 3:
        values[i] = std::bit_cast<float>(static_cast<uint32_t>(random) & 0x807f'ffff);
        break;
      case 4:
        values[i] = (random & 1) != 0 ? -2.5F : 2.5F;
        break;  // Equal magnitudes.
      case 5:
        values[i] = random % 97 == 0 ? normal : 0;
        break;  // Mostly zeros.
      default:
        values[i] = std::ldexp(normal, static_cast<int>(random % 40) - 20);
        break;
    }
  }
  return values;
}

/// Expects |decoded - values| within the stated bound, block by block.
inline void expect_within_bound(const Codec& codec, std::span<const float> values,
                                std::span<const float> decoded) {
  const auto bound = codec.error_bound();
  const size_t block = bound.block_size == 0 ? values.size() : bound.block_size;
  for (size_t begin = 0; begin < values.size(); begin += block) {
    const size_t end = std::min(values.size(), begin + block);
    double largest = 0;
    for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(double{values[i]}));
    for (size_t i = begin; i < end; ++i) {
      const double x = values[i];
      ASSERT_LE(std::abs(decoded[i] - x),
                bound.relative * std::abs(x) + bound.absolute + bound.of_largest * largest)
          << i << ": " << x << " became " << decoded[i];
    }
  }
}

}  // namespace atl::codec
