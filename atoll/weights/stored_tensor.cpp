#include "atoll/weights/stored_tensor.h"

#include <algorithm>

#include "atoll/base/check.h"

namespace atl::weights {
int64_t StoredTensor::num_bytes(int64_t num_values) const {
  const codec::GgmlBlock block = codec::ggml_block(type);
  return num_values / static_cast<int64_t>(block.num_values) *
         static_cast<int64_t>(block.num_bytes);
}

const std::byte* StoredTensor::row(int64_t row) const {
  return bytes.data() + order.place_of(row) * num_bytes(width);
}

StoredTensor StoredTensor::part(int64_t index, int64_t count) const {
  if (count == 1) return *this;
  ATOLL_CHECK(num_rows % count == 0 && order.outer == 1);
  StoredTensor part = *this;
  part.num_rows = num_rows / count;
  const auto size = static_cast<size_t>(part.num_rows * num_bytes(width));
  part.bytes = bytes.subspan(static_cast<size_t>(index) * size, size);
  return part;
}

void StoredTensor::read(int64_t row, int64_t begin, std::span<float> values) const {
  ATOLL_CHECK(row < num_rows && begin + std::ssize(values) <= width);
  const std::byte* const from = this->row(row) + num_bytes(begin);
  codec::dequantize(type, {from, static_cast<size_t>(num_bytes(std::ssize(values)))}, values);
  if (added == 0) return;
  for (float& value : values) value += added;
}

void StoredTensor::read_all(bool has_inputs_first, std::span<float> values) const {
  ATOLL_CHECK(std::ssize(values) == num_rows * width);
  if (has_inputs_first != inputs_first && num_rows > 1) {
    std::vector<float> rows(values.size());
    read_all(inputs_first, rows);
    transpose(rows, width, values);
    return;
  }
  const auto size = static_cast<size_t>(width);
  for (int64_t i = 0; i < num_rows; ++i)
    read(i, 0, values.subspan(static_cast<size_t>(i) * size, size));
}

StoredTensor stored_tensor(codec::GgmlType type, std::span<const std::byte> bytes,
                           const ParameterSpec& spec) {
  return {.type = type,
          .bytes = bytes,
          .num_rows = spec.size / spec.shape.back(),
          .width = spec.shape.back(),
          .inputs_first = spec.inputs_first};
}

void transpose(std::span<const float> rows, int64_t width, std::span<float> columns) {
  ATOLL_CHECK(rows.size() == columns.size());
  constexpr size_t kTile = 32;  // Both sides of it stay in the nearest cache.
  const auto across = static_cast<size_t>(width);
  const size_t down = rows.size() / across;
  for (size_t i0 = 0; i0 < down; i0 += kTile) {
    for (size_t j0 = 0; j0 < across; j0 += kTile) {
      for (size_t i = i0; i < std::min(down, i0 + kTile); ++i) {
        for (size_t j = j0; j < std::min(across, j0 + kTile); ++j) {
          columns[j * down + i] = rows[i * across + j];
        }
      }
    }
  }
}

}  // namespace atl::weights
