#pragma once
// Keys and values of the tokens a model has read, so that the next token costs one position, not
// all of them. Belongs to one thread and one sequence (or one batch of equally long ones).
//
// Shapes: B = sequences, H = key-value heads, S = capacity in positions, N = head size.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "atoll/weights/config.h"

namespace atl::model {

class KvCache {
 public:
  KvCache(const weights::ModelConfig& config, int64_t num_sequences, int64_t capacity,
          at::Device device);
  int64_t length() const { return length_; }
  int64_t capacity() const { return capacity_; }
  /// Forgets what lies behind the first `length` positions.
  void truncate(int64_t length);

  /// Writes the keys and values of one layer behind the positions held; both (B, T, H, N). All
  /// layers are written, then advance(T) makes them count.
  void write(int64_t layer, const at::Tensor& k_BTHN, const at::Tensor& v_BTHN);
  void advance(int64_t num_positions) { length_ += num_positions; }
  /// Makes room for `capacity` positions; what is held stays.
  void reserve(int64_t capacity);
  /// (B, H, length, N) views of the first `length` positions.
  at::Tensor keys_BHSN(int64_t layer, int64_t length) const;
  at::Tensor values_BHSN(int64_t layer, int64_t length) const;

 private:
  std::vector<at::Tensor> keys_BHSN_;
  std::vector<at::Tensor> values_BHSN_;
  int64_t capacity_ = 0;
  int64_t length_ = 0;
};

/// A sequence that takes part in a forward pass with others: its cache, and how many of the pass's
/// tokens are its own.
struct CachedRow {
  KvCache* cache;
  int64_t num_tokens;
};

}  // namespace atl::model
