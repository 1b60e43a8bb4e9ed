#pragma once
// A parameter as its file holds it: in the file's own type, memory-mapped. Plain values over bytes
// that live as long as the ModelFiles that gave them; thread-safe.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/codec/ggml_types.h"

namespace atl::weights {

struct StoredTensor {
  codec::GgmlType type = codec::GgmlType::kF32;
  std::span<const std::byte> bytes;
  int64_t num_rows = 0;  // As they lie in the file; 1 of a vector.
  int64_t width = 0;     // Elements per row: whole blocks of the type.
  /// Of a head, where the file has as neighbours the rows that turn together: rows 2 i and 2 i + 1
  /// of its head are i and i + paired_rows / 2 with us. 0: rows lie as with us.
  int64_t paired_rows = 0;

  /// Of whole blocks.
  int64_t num_bytes(int64_t num_values) const;
  /// Where our row `row` begins in the file.
  const std::byte* row(int64_t row) const;
  /// `values` gets elements [begin, begin + values.size()) of our row: whole blocks.
  void read(int64_t row, int64_t begin, std::span<float> values) const;
  /// All rows, one behind the other.
  void read_all(std::span<float> values) const;
};

/// A vector or matrix whose rows lie as with us.
StoredTensor stored_tensor(codec::GgmlType type, std::span<const std::byte> bytes,
                           const std::vector<int64_t>& shape);

}  // namespace atl::weights
