#pragma once
// What a replica trains, as the loop around it sees it: parameters in a flat buffer, and what adds
// to their gradients. A whole model, or an adapter of one whose layers stay as they are, here or
// with servers. Owned by one thread.
//
// Shapes: B = rows, T = tokens per row, C = hidden size.
#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

#include "atoll/method/train_options.h"
#include "atoll/model/adapter.h"
#include "atoll/model/model.h"
#include "atoll/train/loss.h"

namespace atl::train {

/// Rows of one pass forwards and backwards, in CPU memory; data::kIgnoredTarget is left out.
struct Batch {
  at::Tensor inputs_BT;  // int64.
  at::Tensor targets_BT;
};

/// What the settings want a model to be made for.
model::Purpose purpose_of(const method::TrainOptions& options);

class Learner {
 public:
  virtual ~Learner() = default;
  /// They train.
  virtual const model::Parameters& parameters() const = 0;
  /// The next batches are those of that unit of data.
  virtual void begin_unit(int64_t /*unit*/) {}
  /// Adds `scale` times the gradient of the mean loss over these, which have as many targets each;
  /// their mean cross entropy. Throws InputError where the layers are not to be had.
  virtual double add_gradients(std::span<const Batch> batches, double scale) = 0;
  /// The mean over the batch, without gradients.
  virtual double cross_entropy(const Batch& batch) = 0;
  /// What its passes can tell of. None: they tell nothing.
  virtual std::vector<model::StageSpans> stages() const { return {}; }
  /// They tell it from now on; null: nobody.
  virtual void set_watcher(model::PassWatcher* /*watcher*/) {}
};

class ModelLearner final : public Learner {
 public:
  /// References outlive it. `options`: but for its scale.
  ModelLearner(model::Model& model, const LossOptions& options)
      : model_(model), options_(options) {}

  const model::Parameters& parameters() const override { return model_.parameters(); }
  double add_gradients(std::span<const Batch> batches, double scale) override;
  double cross_entropy(const Batch& batch) override;
  std::vector<model::StageSpans> stages() const override {
    return model::stage_spans(model_.config());
  }
  void set_watcher(model::PassWatcher* watcher) override { model_.set_watcher(watcher); }

 private:
  model::Model& model_;
  const LossOptions options_;
};

/// All layers of a model, frozen, wherever they are.
class FrozenLayers {
 public:
  /// From what the layers made of a batch to its gradient.
  using Turn = std::function<at::Tensor(size_t batch, const at::Tensor& y_BTC)>;

  virtual ~FrozenLayers() = default;
  /// Through all layers, to `turn`, and back. Adds the gradients of the adapter's values to its
  /// flat buffer, in the order of the batches; gives those of the inputs. The bits hang on nothing
  /// but the inputs.
  virtual std::vector<at::Tensor> learn(std::span<const at::Tensor> inputs_BTC,
                                        const model::Adapter& adapter, const Turn& turn) = 0;
  virtual at::Tensor read(const at::Tensor& x_BTC, const model::Adapter& adapter) = 0;
};

/// In this process.
class LocalLayers final : public FrozenLayers {
 public:
  /// It has all its layers, and outlives this.
  explicit LocalLayers(const model::Model& model) : model_(model) {}

  std::vector<at::Tensor> learn(std::span<const at::Tensor> inputs_BTC,
                                const model::Adapter& adapter, const Turn& turn) override;
  at::Tensor read(const at::Tensor& x_BTC, const model::Adapter& adapter) override;

 private:
  const model::Model& model_;
};

class AdapterLearner final : public Learner {
 public:
  /// Of the model embedding, final norm and head are used. References outlive it.
  AdapterLearner(const model::Model& model, FrozenLayers& layers, model::Adapter& adapter,
                 const LossOptions& options)
      : model_(model), layers_(layers), adapter_(adapter), options_(options) {}

  const model::Parameters& parameters() const override { return adapter_.parameters(); }
  double add_gradients(std::span<const Batch> batches, double scale) override;
  double cross_entropy(const Batch& batch) override;

 private:
  /// Tokens of a soft prompt, before each row's own.
  int64_t num_before() const { return adapter_.config().prompt_tokens; }
  at::Tensor embedded(const Batch& batch) const;

  const model::Model& model_;
  FrozenLayers& layers_;
  model::Adapter& adapter_;
  const LossOptions options_;
};

}  // namespace atl::train
