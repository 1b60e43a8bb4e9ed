#include "atoll/model/kv_pages.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::model {
namespace {

constexpr int64_t kPositions = KvPool::kPagePositions;

/// Of a layer in a page, the keys (0), (H, N, P), or the values (1), (H, P, N).
uint16_t* part_of(const at::Tensor& page, int64_t index, int64_t part, const PageShape& shape) {
  ATOLL_CHECK(page.scalar_type() == at::kBFloat16 && page.is_contiguous());
  const int64_t size = shape.num_channels() * kPositions;
  ATOLL_CHECK(page.numel() == page.size(0) * 2 * size && index < page.size(0));
  return static_cast<uint16_t*>(page.mutable_data_ptr()) + (index * 2 + part) * size;
}

/// (rows, columns) to (columns, rows), which lie `stride` apart.
void transpose(const uint16_t* from, int64_t rows, int64_t columns, int64_t from_stride,
               uint16_t* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      to[column * to_stride + row] = from[row * from_stride + column];
    }
  }
}

}  // namespace

std::vector<uint16_t> bits_2CT(std::span<const at::Tensor> pages, int64_t index,
                               const PageShape& shape) {
  const int64_t count = std::ssize(pages) * kPositions;
  const int64_t channels = shape.num_channels();
  std::vector<uint16_t> bits(static_cast<size_t>(2 * channels * count));
  for (int64_t i = 0; i < std::ssize(pages); ++i) {
    const at::Tensor& page = pages[static_cast<size_t>(i)];
    const uint16_t* keys = part_of(page, index, 0, shape);
    for (int64_t channel = 0; channel < channels; ++channel) {
      std::copy_n(keys + channel * kPositions, kPositions,
                  bits.data() + channel * count + i * kPositions);
    }
    const uint16_t* values = part_of(page, index, 1, shape);
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      const int64_t first = channels + head * shape.head_size;
      transpose(values + head * kPositions * shape.head_size, kPositions, shape.head_size,
                shape.head_size, bits.data() + first * count + i * kPositions, count);
    }
  }
  return bits;
}

void write_bits(std::span<const uint16_t> bits_2CT, int64_t index, const PageShape& shape,
                std::span<const at::Tensor> pages) {
  const int64_t count = std::ssize(pages) * kPositions;
  const int64_t channels = shape.num_channels();
  ATOLL_CHECK(std::ssize(bits_2CT) == 2 * channels * count);
  for (int64_t i = 0; i < std::ssize(pages); ++i) {
    const at::Tensor& page = pages[static_cast<size_t>(i)];
    uint16_t* keys = part_of(page, index, 0, shape);
    for (int64_t channel = 0; channel < channels; ++channel) {
      std::copy_n(bits_2CT.data() + channel * count + i * kPositions, kPositions,
                  keys + channel * kPositions);
    }
    uint16_t* values = part_of(page, index, 1, shape);
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      const int64_t first = channels + head * shape.head_size;
      transpose(bits_2CT.data() + first * count + i * kPositions, shape.head_size, kPositions,
                count, values + head * kPositions * shape.head_size, shape.head_size);
    }
  }
}

}  // namespace atl::model
