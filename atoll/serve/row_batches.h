#pragma once
// What a pass has for sequences becomes what they want: hidden states stay as they are, those of
// several sequences become logits together, so that the output matrix is read once for all.
//
// Shapes: W = tokens of a sequence, C = hidden size, V = vocabulary.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>

#include "atoll/model/model.h"

namespace atl::serve {

struct HiddenRows {
  int64_t position;  // The text's, of the first one.
  at::Tensor hidden_WC;
  bool as_logits;  // Whether the sequence wants (W, V).
};

/// Calls take(index, position, rows) with rows in CPU memory, that it may overwrite, for some
/// tokens of rows[index] at a time, in their order. Once it is false, the rest of rows[index] is
/// left out.
void give_rows(const model::Model& model, std::span<const HiddenRows> rows,
               const std::function<bool(size_t, int64_t, const at::Tensor&)>& take);

}  // namespace atl::serve
