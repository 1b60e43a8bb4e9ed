#include "atoll/weights/stored_tensor.h"

#include "atoll/base/check.h"

namespace atl::weights {
int64_t StoredTensor::num_bytes(int64_t num_values) const {
  const codec::GgmlBlock block = codec::ggml_block(type);
  return num_values / static_cast<int64_t>(block.num_values) *
         static_cast<int64_t>(block.num_bytes);
}

const std::byte* StoredTensor::row(int64_t row) const {
  int64_t source = row;
  if (paired_rows > 0) {
    const int64_t at = row % paired_rows;
    const int64_t half = paired_rows / 2;
    source += (at < half ? 2 * at : 2 * (at - half) + 1) - at;
  }
  return bytes.data() + source * num_bytes(width);
}

void StoredTensor::read(int64_t row, int64_t begin, std::span<float> values) const {
  ATOLL_CHECK(row < num_rows && begin + std::ssize(values) <= width);
  const std::byte* const from = this->row(row) + num_bytes(begin);
  codec::dequantize(type, {from, static_cast<size_t>(num_bytes(std::ssize(values)))}, values);
}

void StoredTensor::read_all(std::span<float> values) const {
  ATOLL_CHECK(std::ssize(values) == num_rows * width);
  const auto size = static_cast<size_t>(width);
  for (int64_t i = 0; i < num_rows; ++i)
    read(i, 0, values.subspan(static_cast<size_t>(i) * size, size));
}

StoredTensor stored_tensor(codec::GgmlType type, std::span<const std::byte> bytes,
                           const std::vector<int64_t>& shape) {
  const int64_t num_rows = shape.size() > 1 ? shape[0] : 1;
  return {.type = type, .bytes = bytes, .num_rows = num_rows, .width = shape.back()};
}

}  // namespace atl::weights
