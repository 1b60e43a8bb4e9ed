#pragma once
// Whose keys and values a blob has, and how they are coded.
#include <cstddef>
#include <cstdint>
#include <string>

namespace atl::kv {

enum class Level : uint8_t {
  kExact,       // To the bit.
  kVectorwise,  // CacheGen's (vectorwise_coder.h).
  kTransform,   // Decorrelated components (group_transform.h).
};

struct BlobHead {
  Level level = Level::kExact;
  uint8_t step = 0;   // Which of the profile's levels of that kind.
  std::string model;  // As chains name it (chain::Lease::digest).
  int32_t first_layer = 0;
  int32_t end_layer = 0;  // Before which its layers end.
  uint32_t num_channels = 0;
  int64_t begin = 0;        // Its first token's position.
  uint32_t num_tokens = 0;  // At least one.

  size_t num_planes() const { return 2 * static_cast<size_t>(end_layer - first_layer); }
  size_t num_values() const { return num_planes() * num_channels * num_tokens; }
  bool operator==(const BlobHead&) const = default;
};

}  // namespace atl::kv
