#pragma once
// Keys and values of the tokens a model has read, so that the next token costs one position, not
// all of them. They lie in pages: sequences grow without being copied, share what they have in
// common, and all their bytes can be counted. Belongs to one thread.
//
// Shapes: L = layers, T = tokens, H = key-value heads, S = positions, P = positions of a page,
// N = head size.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/weights/hf_config.h"

namespace atl::model {

/// (L, 2, P * H * N): of each layer the keys, (H, N, P), as products read them; then the values,
/// (H, P, N). FP32 or BF16.
using KvPage = std::shared_ptr<const at::Tensor>;

/// Some of a model's layers: from `begin` to before `end`.
struct LayerRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

/// Where pages come from, and where they go when nobody has them any more.
class KvPool {
 public:
  static constexpr int64_t kPagePositions = 32;

  /// FP32, of a whole model; at most so many pages at once; 0: as many as there is memory for.
  KvPool(const weights::ModelConfig& config, at::Device device, int64_t max_pages = 0)
      : KvPool(config, device, at::kFloat, {0, config.num_layers}, max_pages) {}
  /// Of a model of which only these layers are here.
  KvPool(const weights::ModelConfig& config, at::Device device, at::ScalarType type,
         LayerRange layers, int64_t max_pages);

  /// Nothing when all are taken. Not initialised.
  KvPage take();
  /// Like a page, but counted nowhere: for who brings what one is to hold.
  at::Tensor loose_page() const;
  int64_t page_bytes() const;
  at::ScalarType type() const { return options_.dtype().toScalarType(); }
  const std::vector<int64_t>& heads_shape() const { return heads_HPN_; }
  int64_t first_layer() const { return layers_.begin; }
  int64_t num_taken() const { return shelf_->num_taken; }
  /// That can be taken now.
  int64_t num_left() const;

 private:
  struct Shelf {
    std::vector<at::Tensor> spare;
    int64_t num_taken = 0;
  };

  std::vector<int64_t> heads_HPN_;
  LayerRange layers_;
  at::TensorOptions options_;
  int64_t max_pages_;
  std::shared_ptr<Shelf> shelf_;
};

/// Of one sequence.
class KvCache {
 public:
  /// With a pool of its own.
  KvCache(const weights::ModelConfig& config, at::Device device)
      : KvCache(std::make_shared<KvPool>(config, device)) {}
  explicit KvCache(std::shared_ptr<KvPool> pool) : pool_(std::move(pool)) {}
  /// That begins with full pages, which others hold too.
  KvCache(std::shared_ptr<KvPool> pool, std::vector<KvPage> full_pages);

  int64_t length() const { return length_; }
  const std::vector<KvPage>& pages() const { return pages_; }
  /// The one that its pages begin with.
  int64_t first_layer() const { return pool_->first_layer(); }
  at::ScalarType type() const { return pool_->type(); }
  /// How many pages prepare() would take.
  int64_t num_lacking(int64_t num_positions) const;
  /// Forgets what lies behind the first `length` positions.
  void truncate(int64_t length);
  /// Another sequence that begins as this one does.
  KvCache fork() const;

  /// Makes room for as many positions behind those held, in pages that are this sequence's alone.
  /// False when the pool has too few; then nothing has changed.
  [[nodiscard]] bool prepare(int64_t num_positions);
  /// Copies of the full pages with the positions from `begin` to before `end`.
  std::vector<at::Tensor> copied_pages(int64_t begin, int64_t end) const;
  /// As many positions as these pages have, behind full pages; false when the pool has too few.
  [[nodiscard]] bool append(std::span<const at::Tensor> pages);
  /// Writes the keys and values of one layer behind the positions held; both (T, H, N), any
  /// strides. All layers are written, in room that was prepared, then advance(T) makes them count.
  void write(int64_t layer, const at::Tensor& k_THN, const at::Tensor& v_THN);
  void advance(int64_t num_positions) { length_ += num_positions; }

  /// (H, S, N) of the first `length` positions: a copy.
  at::Tensor keys_HSN(int64_t layer, int64_t length) const { return gathered(layer, 0, length); }
  at::Tensor values_HSN(int64_t layer, int64_t length) const { return gathered(layer, 1, length); }

 private:
  bool shares_last_page() const;
  /// Of a page and layer, the keys (0) or the values (1): a view (H, P, N).
  at::Tensor heads_HPN(int64_t page, int64_t layer, int64_t part) const;
  at::Tensor gathered(int64_t layer, int64_t part, int64_t length) const;

  std::shared_ptr<KvPool> pool_;
  std::vector<KvPage> pages_;
  int64_t length_ = 0;
};

class Adapter;

/// A sequence that takes part in a forward pass with others: its cache, and how many of the pass's
/// tokens are its own.
struct CachedRow {
  KvCache* cache;
  int64_t num_tokens;
  const Adapter* adapter = nullptr;  // By which its tokens are read; null: none.
};

}  // namespace atl::model
