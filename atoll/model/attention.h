#pragma once
// Causal attention with rotary positions, as all families use it: with and without a cache, with
// and without a window.
//
// Shapes: B = rows, T = positions, R = elements of a head that turn, F as in attention_kernel.h.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "atoll/model/attention_kernel.h"
#include "atoll/model/causal_attention.h"
#include "atoll/model/kv_cache.h"
#include "atoll/weights/config.h"

namespace atl::model {

/// Rotary factors (Su et al. 2021) and their stretched kinds: linear (Chen et al. 2023), dynamic
/// (NTK-aware, by the text's length), llama3 (long waves only), yarn (Peng et al. 2023, section
/// 3.2), longrope (Ding et al. 2024: each pair by a factor of its own).
class Rotary {
 public:
  Rotary(const weights::ModelConfig& config, at::Device device);
  /// Cosines and sines (T, R / 2) of `count` positions from `begin` on, at the end of their text.
  std::pair<at::Tensor, at::Tensor> factors(int64_t begin, int64_t count) const;

 private:
  /// Of the positions from `begin` to before `end` of a text of `length`.
  std::pair<at::Tensor, at::Tensor> table(int64_t begin, int64_t end, int64_t length) const;

  weights::ModelConfig config_;
  at::Device device_;
  // Of the first positions of texts that are not over steady_positions(): as many as were asked
  // for, and some more. A context of millions would cost gigabytes.
  mutable at::Tensor cos_TR_, sin_TR_;
};

class Attention {
 public:
  /// A model that `trains` reads texts without a cache as its gradients need it. Caches are of
  /// `kv_type`, and without one keys and values are rounded as if they were.
  Attention(const weights::ModelConfig& config, at::Device device, at::ScalarType kv_type,
            bool trains);
  /// Queries, keys and values (B, T, F) to (B, T, H N). May overwrite qkv_BTF: the caller gives it
  /// away. With caches without autograd; each row attends to its own alone. `sinks_H`: see
  /// composite.h.
  at::Tensor operator()(const at::Tensor& qkv_BTF, const at::Tensor& sinks_H, int64_t layer,
                        std::span<const CachedRow> cached) const;

 private:
  AttentionShape shape_of(const at::Tensor& qkv_BTF, int64_t layer) const;
  HeadSizes sizes_of(const AttentionShape& shape, const at::Tensor& sinks_H) const;
  std::pair<at::Tensor, at::Tensor> factors(int64_t layer, int64_t begin, int64_t count) const;
  at::Tensor turned(const at::Tensor& qkv_BTF, int64_t layer, int64_t begin) const;
  at::Tensor with_caches(const at::Tensor& qkv_BTF, const at::Tensor& sinks_H, int64_t layer,
                         std::span<const CachedRow> cached) const;
  at::Tensor with_pages(const at::Tensor& qkv_1TF, const at::Tensor& sinks_H, int64_t layer,
                        std::span<const CachedRow> cached) const;

  weights::ModelConfig config_;
  Rotary rotary_;
  std::optional<Rotary> local_rotary_;  // Of layers with a window, where it is another.
  at::ScalarType kv_type_;
  bool trains_;
};

}  // namespace atl::model
