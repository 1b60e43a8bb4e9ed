#pragma once
// Which rows a training step reads. A row is a fixed window of a token file: row r holds tokens
// [r*T, (r+1)*T), the tail that fills no row is dropped, documents may span rows (as OLMo-core
// packs them). The global batch is a pure function of (stores, options, step), whatever the number
// of replicas: replica i of M takes rows [i*B/M, (i+1)*B/M) of it.
//
// A store alone: pass p (from 0) visits the rows in sample_order(seed, p), cut to whole global
// batches: the rest of that pass is left out, the next step begins the next pass.
// Stores by weight: the places of all steps, sB ... (s+1)B-1, are dealt to the stores by
// data/blend.h. The n-th row that store k gives is place n mod R of sample_order(seed, n / R) of
// its R rows: each store has passes of its own, and leaves nothing out. Rows are numbered through:
// those of the first store, then those of the second, and so on.
//
// Shapes: B = rows asked for, T = sequence_length. Thread-safe; must not outlive its stores.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/data/blend.h"
#include "atoll/data/mixture.h"
#include "atoll/data/token_store.h"

namespace atl::data {

/// The target that a loss must leave out (PyTorch's ignore_index).
inline constexpr int64_t kIgnoredTarget = -100;

struct BatchOptions {
  int64_t sequence_length = 0;  // Tokens per row, at least 2.
  int64_t batch_rows = 0;       // Rows of the global batch.
  uint64_t seed = 0;
};

/// Where a row lies.
struct RowPlace {
  const TokenStore* store = nullptr;
  int64_t row = 0;  // Of that store.
};

class Batches {
 public:
  /// Throws InputError when a store holds less than one row, UsageError when an option is out of
  /// range. Of the validation parts of a mixture those with a row are read.
  Batches(const TokenStore& store, Split split, BatchOptions options);
  Batches(const Mixture& mixture, Split split, BatchOptions options);

  /// Rows of the whole split, 0 ... num_rows()-1.
  int64_t num_rows() const { return num_rows_; }
  /// Of a store alone.
  int64_t steps_per_pass() const { return num_rows_ / options_.batch_rows; }
  /// The pass that step `step` (from 0) belongs to; nothing for a mixture.
  std::optional<int64_t> pass(int64_t step) const;
  /// Throws InputError unless a store alone holds at least one whole global batch, as rows() needs:
  /// call it once before training.
  void require_whole_batch() const;
  /// The batch_rows row numbers of step `step` (from 0), in the order of the global batch.
  std::vector<int64_t> rows(int64_t step) const;
  /// `count` rows, or all if there are fewer, that stand for the split: of each store as many as
  /// its weight says, spread evenly over it.
  std::vector<int64_t> spread(int64_t count) const;
  RowPlace place(int64_t row) const;

  /// These rows are to be filled soon: they are brought into memory meanwhile.
  void will_fill(std::span<const int64_t> rows) const;
  /// Fills both arrays, row by row: inputs_BT the row's T tokens, targets_BT the same shifted left
  /// by one; the last target of each row is kIgnoredTarget, so a row trains T-1 predictions.
  void fill(std::span<const int64_t> rows, std::span<int64_t> inputs_BT,
            std::span<int64_t> targets_BT) const;

 private:
  struct Part {
    const TokenStore* store = nullptr;
    double weight = 1;
    int64_t first_row = 0;
    int64_t num_rows = 0;
  };
  /// Of the rows of a part, in the pass that was read last.
  struct Order {
    int64_t pass = -1;
    std::vector<uint32_t> rows;
  };
  void add(const TokenStore& store, double weight);
  void require_row(const TokenStore& store) const;
  std::vector<double> weights() const;
  /// Row of the numbering through all stores.
  int64_t row_at(size_t part, int64_t pass, int64_t place) const ATOLL_REQUIRES(mutex_);
  std::vector<int64_t> blended(int64_t step) const ATOLL_REQUIRES(mutex_);

  Split split_;
  BatchOptions options_;
  int64_t num_rows_ = 0;
  std::vector<Part> parts_;
  mutable Mutex mutex_;
  mutable std::vector<Order> orders_ ATOLL_GUARDED_BY(mutex_);  // By part.
  /// The blend at every kBlendStride-th place, so far.
  mutable std::vector<Blend> blends_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::data
