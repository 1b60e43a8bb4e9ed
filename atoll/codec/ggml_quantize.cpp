#include "atoll/codec/ggml_quantize.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>

#include "atoll/base/check.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

constexpr size_t kValues = 32;  // Of a block.

/// Arithmetic with subnormal numbers while it lives: some threads take them for 0.
class UsualArithmetic {
 public:
  UsualArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~UsualArithmetic() { std::fesetenv(&before_); }
  UsualArithmetic(const UsualArithmetic&) = delete;
  UsualArithmetic& operator=(const UsualArithmetic&) = delete;

 private:
  std::fenv_t before_{};
};

void write_f16(const float* value, std::byte* to) { store(float_to_half(*value), to); }
void write_bf16(const float* value, std::byte* to) { store(float_to_bfloat(*value), to); }

/// Infinite where the scale is so small that it is written as 0: then levels mean nothing, and are
/// 0.
float inverse_of(float scale) { return scale == 0 ? 0 : 1.0F / scale; }

/// Whether some value is not finite: then the block has a scale that is no number, and all of its
/// values are spoilt, as they are in a product.
bool spoil_not_finite(const float* values, std::byte* block, size_t num_bytes) {
  if (std::all_of(values, values + kValues, is_finite)) return false;
  std::fill_n(block, num_bytes, std::byte{0});
  const float no_number = std::numeric_limits<float>::quiet_NaN();
  write_f16(&no_number, block);
  return true;
}

/// The scale, and each value over it.
void write_q8_0(const float* values, std::byte* block) {
  if (spoil_not_finite(values, block, 2 + kValues)) return;
  float largest = 0;
  for (size_t i = 0; i < kValues; ++i) largest = std::max(largest, std::abs(values[i]));
  const float scale = largest / 127.0F;
  const float inverse = inverse_of(scale);
  write_f16(&scale, block);
  for (size_t i = 0; i < kValues; ++i) {
    // Half away from zero.
    const float value = std::round(values[i] * inverse);
    const bool is_level = std::abs(value) <= 127;
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(is_level ? value : 0));
  }
}

/// The scale makes -8 of the value that is furthest from 0.
void write_q4_0(const float* values, std::byte* block) {
  if (spoil_not_finite(values, block, 2 + kValues / 2)) return;
  const float* const furthest = std::max_element(
      values, values + kValues, [](float a, float b) { return std::abs(a) < std::abs(b); });
  const float scale = *furthest / -8.0F;
  const float inverse = inverse_of(scale);
  write_f16(&scale, block);
  const auto level = [&](size_t i) {
    const float shifted = values[i] * inverse + 8.5F;
    const bool is_level = shifted >= 0 && shifted < 17;
    return is_level ? std::min(static_cast<uint8_t>(shifted), uint8_t{15}) : uint8_t{0};
  };
  for (size_t i = 0; i < kValues / 2; ++i) {
    block[2 + i] = static_cast<std::byte>(level(i) | level(i + kValues / 2) << 4);
  }
}

template <typename Write>
Bytes write_each(const GgmlBlock& block, std::span<const float> values, const Write& write) {
  Bytes bytes(values.size() / block.num_values * block.num_bytes);
  for (size_t i = 0; i < values.size() / block.num_values; ++i) {
    write(values.data() + i * block.num_values, bytes.data() + i * block.num_bytes);
  }
  return bytes;
}

}  // namespace

Bytes quantize(GgmlType type, std::span<const float> values) {
  const GgmlBlock block = ggml_block(type);
  ATOLL_CHECK(values.size() % block.num_values == 0);
  const UsualArithmetic usual;
  switch (type) {
    case GgmlType::kF32: {
      const auto bytes = std::as_bytes(values);
      return {bytes.begin(), bytes.end()};
    }
    case GgmlType::kF16:
      return write_each(block, values, write_f16);
    case GgmlType::kBF16:
      return write_each(block, values, write_bf16);
    case GgmlType::kQ8_0:
      return write_each(block, values, write_q8_0);
    case GgmlType::kQ4_0:
      return write_each(block, values, write_q4_0);
    default:
      break;
  }
  ATOLL_CHECK(false, "a type that is read only");
  return {};
}

}  // namespace atl::codec
