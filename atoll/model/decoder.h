#pragma once
// The forward pass of all families, layer by layer: what a family's LayerDesign says, from the
// parts that its models have. Between layers there is one tensor, the residual stream, so that any
// split into blocks of layers gives the bits of the whole, forwards and backwards. Uses the weights
// of a Parameters that outlives it, and is called by one thread.
//
// Shapes: B = rows, T = tokens per row, C = hidden size, F as in attention_kernel.h.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "atoll/model/adapter.h"
#include "atoll/model/attention.h"
#include "atoll/model/experts.h"
#include "atoll/model/kv_cache.h"
#include "atoll/model/parameters.h"
#include "atoll/model/pass_watcher.h"
#include "atoll/weights/config.h"
#include "atoll/weights/families.h"

namespace atl::model {

class Decoder {
 public:
  /// With these layers of the model's.
  Decoder(const weights::ModelConfig& config, const Parameters& parameters, LayerRange layers);
  const LayerRange& layers() const { return range_; }
  /// Model::set_activation_checkpointing().
  void set_activation_checkpointing(bool on) { checkpoints_activations_ = on; }
  /// Model::set_watcher().
  void set_watcher(PassWatcher* watcher) { watcher_ = watcher; }
  PassWatcher* watcher() const { return watcher_; }

  // With `cached` tokens follow those in its caches, and their keys and values are written there
  // (KvCache::advance() is the caller's). Several rows lie one behind the other in a batch of one,
  // so that rows of different lengths need no padding. Layers with a loss of their own add it to
  // `losses`, where there are some. What has a gradient is read as in training, whether or not the
  // weights have one as well.

  /// What the first layer reads.
  at::Tensor embed(const at::Tensor& tokens_BT, std::span<const CachedRow> cached) const;
  /// From what a layer reads to what the next one does.
  at::Tensor layer(int64_t index, const at::Tensor& x_BTC, std::span<const CachedRow> cached,
                   LayerLosses* losses = nullptr) const;
  /// The same without caches, with an adapter.
  at::Tensor layer(int64_t index, const at::Tensor& x_BTC, const Adapter& adapter) const;
  /// The final norm, behind the last layer.
  at::Tensor finish(const at::Tensor& x_BTC) const;

  /// All of these.
  at::Tensor hidden_BTC(const at::Tensor& tokens_BT, std::span<const CachedRow> cached,
                        LayerLosses* losses = nullptr) const;
  /// The matrix (V, C) that turns hidden states into logits.
  const Weight& head_VC() const { return head_; }

 private:
  struct Mlp {
    Projection input, output;
  };
  struct Layer {
    int64_t index = 0;
    Projection attention_norm, qkv, output, attention_norm_behind;
    Projection mlp_norm, router, mlp_norm_behind;
    Weight query_norm, key_norm, sinks;
    std::vector<Mlp> mlps;  // One, or each expert's.
  };
  /// The residual stream, and what a part reads of it, or its first projection of that.
  using Read = std::pair<at::Tensor, at::Tensor>;
  /// What a layer is told beside what it reads.
  struct With {
    std::span<const CachedRow> cached;
    AdaptedRows adapted;
    LayerLosses* losses = nullptr;
  };

  Layer layer_of(const Parameters& parameters, int64_t index) const;
  at::Tensor layer_with(int64_t index, const at::Tensor& x_BTC, const With& with) const;
  at::Tensor with_norms_behind(const Layer& layer, const at::Tensor& x_BTC, const With& with) const;
  at::Tensor norm(const Projection& weights, const at::Tensor& x_BTC) const;
  Read add_and_read(const Projection& norm, const at::Tensor& x_BTC,
                    const at::Tensor& delta_BTC) const;
  Read add_and_project(const Projection& norm, const Projection& projection,
                       const ProjectionPlace& place, const at::Tensor& x_BTC,
                       const at::Tensor& delta_BTC, const With& with) const;
  at::Tensor with_norm(const Layer& layer, const at::Tensor& qkv_BTF) const;
  at::Tensor attend(const Layer& layer, at::Tensor qkv_BTF, const With& with) const;
  /// Whether an MLP has all rows at once, as a way back needs it, or slices of them.
  bool is_at_once(const at::Tensor& x) const;
  at::Tensor mlp(const Layer& layer, const at::Tensor& x_BTC, const With& with) const;
  at::Tensor mlp_of(const Layer& layer, const at::Tensor& x_MC, const AdaptedRows& adapted,
                    LayerLosses* losses) const;
  at::Tensor mlp_of(const Mlp& mlp, const at::Tensor& x_MC, int64_t layer,
                    const AdaptedRows& adapted) const;
  at::Tensor mlp_output(const Mlp& mlp, const at::Tensor& inner_MF, int64_t layer,
                        const AdaptedRows& adapted) const;
  at::Tensor activated(const at::Tensor& inner) const;

  weights::ModelConfig config_;
  weights::LayerDesign design_;
  bool is_parallel_;  // Attention and MLP read the same residual stream.
  bool trains_;
  bool checkpoints_activations_ = false;
  PassWatcher* watcher_ = nullptr;
  Attention attention_;
  Weight embedding_, positions_, head_;
  Projection final_norm_;
  LayerRange range_;
  std::vector<Layer> layers_;  // Those of the range.
};

}  // namespace atl::model
