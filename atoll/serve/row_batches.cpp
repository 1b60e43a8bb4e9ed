#include "atoll/serve/row_batches.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace atl::serve {
namespace {

constexpr int64_t kLogitRows = 64;  // At a time: a vocabulary of 200,000 in FP32 is 0.8 MB a row.

struct Piece {
  size_t index;
  int64_t position;
  at::Tensor hidden_WC;
};

}  // namespace

void give_rows(const model::Model& model, std::span<const HiddenRows> rows,
               const std::function<bool(size_t, int64_t, const at::Tensor&)>& take) {
  std::vector<bool> is_over(rows.size());
  const auto give = [&](const Piece& piece, const at::Tensor& values) {
    if (!is_over[piece.index]) is_over[piece.index] = !take(piece.index, piece.position, values);
  };
  std::vector<Piece> pieces;
  int64_t num_rows = 0;
  const auto give_logits = [&] {
    if (num_rows == 0) return;
    std::vector<at::Tensor> hidden;
    for (const Piece& piece : pieces) hidden.push_back(piece.hidden_WC);
    const at::Tensor logits_WV =
        model.logits(hidden.size() == 1 ? hidden.front() : at::cat(hidden)).to(at::kCPU);
    int64_t first = 0;
    for (const Piece& piece : std::exchange(pieces, {})) {
      const int64_t count = piece.hidden_WC.size(0);
      give(piece, logits_WV.narrow(0, first, count));
      first += count;
    }
    num_rows = 0;
  };
  for (size_t index = 0; index < rows.size(); ++index) {
    const HiddenRows& all = rows[index];
    if (!all.as_logits) {
      give({index, all.position, {}}, all.hidden_WC.to(at::kCPU));
      continue;
    }
    const int64_t count = all.hidden_WC.size(0);
    for (int64_t i = 0; i < count && !is_over[index];) {
      const int64_t size = std::min(kLogitRows - num_rows, count - i);
      pieces.push_back({index, all.position + i, all.hidden_WC.narrow(0, i, size)});
      num_rows += size;
      i += size;
      if (num_rows == kLogitRows) give_logits();
    }
  }
  give_logits();
}

}  // namespace atl::serve
