#pragma once
// A parameter as its file holds it: in the file's own type, memory-mapped. Plain values over bytes
// that live as long as the ModelFiles that gave them; thread-safe.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/codec/ggml_types.h"
#include "atoll/weights/config.h"

namespace atl::weights {

/// Where a file has our rows. With us runs of `run` rows lie as a table of `outer` by `inner`,
/// which repeats; in the file each such table is turned: `inner` by `outer`. As made: as with us.
struct RowOrder {
  int64_t outer = 1;
  int64_t inner = 1;
  int64_t run = 1;

  /// The file's row that is our row `row`.
  int64_t place_of(int64_t row) const {
    if (outer == 1) return row;
    const int64_t at = row / run % (outer * inner);
    return row + (at % inner * outer + at / inner - at) * run;
  }
  /// From the file's rows to ours.
  RowOrder back() const { return {.outer = inner, .inner = outer, .run = run}; }
};

struct StoredTensor {
  codec::GgmlType type = codec::GgmlType::kF32;
  std::span<const std::byte> bytes;
  int64_t num_rows = 0;  // As they lie in the file; 1 of a vector.
  int64_t width = 0;     // Elements per row: whole blocks of the type.
  RowOrder order = {};
  bool inputs_first = false;  // A matrix with a row for each input, not for each output.
  float added = 0;            // To each value as it is read; the products of matrices do not.

  /// Of whole blocks.
  int64_t num_bytes(int64_t num_values) const;
  /// Where our row `row` begins in the file.
  const std::byte* row(int64_t row) const;
  /// The rows of one of `count` parts, which lie one behind the other.
  StoredTensor part(int64_t index, int64_t count) const;
  /// `values` gets elements [begin, begin + values.size()) of our row: whole blocks.
  void read(int64_t row, int64_t begin, std::span<float> values) const;
  /// All of them, a row for each output (`has_inputs_first`: for each input), one behind the other.
  void read_all(bool has_inputs_first, std::span<float> values) const;
};

/// A parameter that lies as with us.
StoredTensor stored_tensor(codec::GgmlType type, std::span<const std::byte> bytes,
                           const ParameterSpec& spec);

/// `rows` (of `width` values each) as columns.
void transpose(std::span<const float> rows, int64_t width, std::span<float> columns);

}  // namespace atl::weights
