#pragma once
// Keys and values between a cache's pages and what coders take: of each layer and channel its
// positions one behind the other. Pure; pages that nobody else writes may be read by any thread.
//
// Shapes: H = key-value heads, N = head size, C = channels (H N), P = positions of a page, T =
// tokens of all pages: 2 = keys, then values.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/model/kv_cache.h"

namespace atl::model {

struct PageShape {
  int64_t num_heads = 0;
  int64_t head_size = 0;

  int64_t num_channels() const { return num_heads * head_size; }
};

/// The bits of a layer, the one with that index in the pages, (2, C, T); BF16.
std::vector<uint16_t> bits_2CT(std::span<const at::Tensor> pages, int64_t index,
                               const PageShape& shape);
/// The inverse.
void write_bits(std::span<const uint16_t> bits_2CT, int64_t index, const PageShape& shape,
                std::span<const at::Tensor> pages);

}  // namespace atl::model
