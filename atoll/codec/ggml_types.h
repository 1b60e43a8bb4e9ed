#pragma once
// The types of llama.cpp's tensors: numbers as they are, or blocks of small whole numbers with a
// scale (and, in some, an offset) for each block or part of one. Pure, thread-safe.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace atl::codec {

/// Its numbers are those of the format.
enum class GgmlType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

/// How many values a block has, and how many bytes.
struct GgmlBlock {
  std::string_view name;
  size_t num_values;
  size_t num_bytes;
};

/// Nothing where there is no type with this number, or none that can be read.
std::optional<GgmlType> ggml_type(uint32_t number);
GgmlBlock ggml_block(GgmlType type);

/// The values of whole blocks, bit for bit those of PyPI `gguf`. `values` has room for exactly
/// them.
void dequantize(GgmlType type, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace atl::codec
