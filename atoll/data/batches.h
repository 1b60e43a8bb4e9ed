#pragma once
// Which rows a training step reads. A row is a fixed window of the token file: row r holds tokens
// [r*T, (r+1)*T), the tail that fills no row is dropped, documents may span rows (as OLMo-core
// packs them). Pass p (from 0) visits the rows in sample_order(seed, p), cut to whole global
// batches: the rest of that pass is left out, the next step begins the next pass. So the global
// batch is a pure function of (store, options, step), whatever the number of replicas: replica i of
// M takes rows [i*B/M, (i+1)*B/M) of it.
//
// Shapes: B = rows asked for, T = sequence_length. Thread-safe; must not outlive its store.
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "atoll/data/token_store.h"

namespace atl::data {

/// The target that a loss must leave out (PyTorch's ignore_index).
inline constexpr int64_t kIgnoredTarget = -100;

struct BatchOptions {
  int64_t sequence_length = 0;  // Tokens per row, at least 2.
  int64_t batch_rows = 0;       // Rows of the global batch.
  uint64_t seed = 0;
};

class Batches {
 public:
  /// Throws InputError when the split holds less than one row, UsageError when an option is out of
  /// range.
  Batches(const TokenStore& store, Split split, BatchOptions options);

  /// Rows of the whole split; validation reads 0 ... num_rows()-1 in that order.
  int64_t num_rows() const { return num_rows_; }
  int64_t steps_per_pass() const { return num_rows_ / options_.batch_rows; }
  /// The pass that step `step` (from 0) belongs to.
  int64_t pass(int64_t step) const;
  /// Throws InputError unless the split holds at least one whole global batch, as rows() needs:
  /// call it once before training.
  void require_whole_batch() const;
  /// The batch_rows row numbers of step `step` (from 0), in the order of the global batch.
  std::vector<int64_t> rows(int64_t step) const;

  /// Fills both arrays, row by row: inputs_BT the row's T tokens, targets_BT the same shifted left
  /// by one; the last target of each row is kIgnoredTarget, so a row trains T-1 predictions.
  void fill(std::span<const int64_t> rows, std::span<int64_t> inputs_BT,
            std::span<int64_t> targets_BT) const;

 private:
  const TokenStore& store_;
  Split split_;
  BatchOptions options_;
  int64_t num_rows_ = 0;
  mutable std::mutex mutex_;  // Guards the order of the pass read last.
  mutable int64_t order_pass_ = -1;
  mutable std::vector<uint32_t> order_;
};

}  // namespace atl::data
