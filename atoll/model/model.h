#pragma once
// A model: its parameters, and the decoder over them. Architecture only;
// training, sampling and files live elsewhere. Owned by one thread. Equal threads give equal bits.
//
// Shapes: B = rows, T = tokens per row, C = hidden size, V = vocabulary.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "atoll/model/decoder.h"
#include "atoll/model/kv_cache.h"
#include "atoll/model/parameters.h"
#include "atoll/weights/config.h"

namespace atl::model {

class Model {
 public:
  /// Parameters are zero until initialise() or a load. Throws UsageError: see check().
  Model(const weights::ModelConfig& config, at::Device device, Purpose purpose);
  /// On the CPU, for inference, with the weights as the files hold them.
  Model(const weights::ModelConfig& config, std::shared_ptr<const weights::ModelFiles> files)
      : Model(config, std::move(files), {0, config.num_layers}) {}
  /// The same of a part of its layers, for which layers_1TC() is: of the others nothing is read.
  Model(const weights::ModelConfig& config, std::shared_ptr<const weights::ModelFiles> files,
        LayerRange layers);

  const weights::ModelConfig& config() const { return config_; }
  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  at::Device device() const { return parameters_.device(); }
  /// Where keys and values of these layers are kept; at most so many pages, 0: see KvPool.
  std::shared_ptr<KvPool> kv_pool(LayerRange layers, int64_t max_pages = 0) const {
    return std::make_shared<KvPool>(config_, device(), parameters_.kv_type(), layers, max_pages);
  }
  /// For a text, of all layers that are here.
  KvCache kv_cache() const { return KvCache(kv_pool(decoder_.layers())); }

  /// Normal with deviation 0.02, the projections back into the residual stream 0.02 / sqrt(2 L)
  /// (GPT-2), norms 1 (stored as 0 where files have what is over 1), biases 0. A pure function of
  /// (seed, parameter name, index): the same on every machine with the same C library.
  void initialise(uint64_t seed);

  /// The hidden states after the final norm; tokens_BT is int64 on the model's device, T at most
  /// ModelConfig::context(). With autograd when gradients are enabled and the model trains.
  at::Tensor hidden_BTC(const at::Tensor& tokens_BT, LayerLosses* losses = nullptr) const;
  /// The same for tokens that follow those in the cache, which grows by T. Without autograd.
  at::Tensor hidden_BTC(const at::Tensor& tokens_BT, KvCache& cache) const;
  /// The same for several sequences, whose tokens lie one behind the other in tokens_1T: as if each
  /// were read alone, in one pass over the weights.
  at::Tensor hidden_1TC(const at::Tensor& tokens_1T, std::span<const CachedRow> rows) const;
  /// What some of the layers make of what the one before them made. The caches are a pool's of
  /// this model's layers, with room for as many positions.
  at::Tensor layers_1TC(LayerRange layers, const at::Tensor& x_1TC,
                        std::span<const CachedRow> rows) const;
  /// Whether each layer is computed again on its way back, from what it has read alone (Chen et al.
  /// 2016): memory for a layer's activations instead of all layers'.
  void set_activation_checkpointing(bool on) { decoder_.set_activation_checkpointing(on); }
  /// Passes with gradients tell it what they read; null: nobody. It outlives them.
  void set_watcher(PassWatcher* watcher) { decoder_.set_watcher(watcher); }
  /// Forgets what a text of `length` is to have other keys for than it had when it was shorter:
  /// with LongRoPE, which has two sets of factors, and a text keeps to one (as transformers does
  /// it).
  void forget_other_keys(KvCache& cache, int64_t length) const;
  /// Throws InputError naming an id that is not in the vocabulary.
  void check_ids(std::span<const int64_t> ids) const;
  /// Hidden states to logits; a large result: (.., V).
  at::Tensor logits(const at::Tensor& hidden) const;
  /// The matrix (V, C) that turns hidden states into logits; the embedding's when tied.
  const Weight& head_VC() const { return decoder_.head_VC(); }
  /// For those who run it block by block. They check tokens and lengths, and advance caches.
  const Decoder& decoder() const { return decoder_; }

 private:
  void check_length(int64_t length) const;
  void check_tokens(const at::Tensor& tokens_BT) const;

  weights::ModelConfig config_;
  Parameters parameters_;
  Decoder decoder_;
};

/// Fills the flat buffer from the model's files.
void load_weights(const Model& model, const weights::ModelFiles& files);

/// A model for inference from a Hugging Face folder or GGUF file: on the CPU with its weights as
/// they lie there. Throws InputError: see ModelFiles.
Model load_model(const std::filesystem::path& folder, at::Device device);

}  // namespace atl::model
