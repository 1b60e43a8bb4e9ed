#pragma once
// The inner optimiser on flat buffers. Shape suffix: P = all parameters of the replica.
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/method/train_options.h"
#include "atoll/model/parameters.h"

namespace atl::train {

/// A weight matrix (outputs, inputs) inside the flat buffer, or its transpose: Muon's update of one
/// is the transpose of its update of the other.
struct MatrixPlace {
  int64_t begin = 0;
  int64_t num_outputs = 0;
  int64_t num_inputs = 0;
  int64_t end() const { return begin + num_outputs * num_inputs; }
};

/// What an optimiser updates; the tensors share memory with the model.
struct OptimizerTarget {
  at::Tensor values_P;
  at::Tensor gradients_P;
  /// Spans [begin, end) of P that weight decay applies to (matrices); the rest is left alone.
  std::vector<std::pair<int64_t, int64_t>> decayed;
  /// Matrices inside the layers, ascending, each alone: query, key and value lie side by side but
  /// are three. Muon is for these; embedding, head and vectors are AdamW's.
  std::vector<MatrixPlace> hidden;
};

/// All parameters of a model that trains.
OptimizerTarget target_of(const model::Parameters& parameters);

class InnerOptimizer {
 public:
  virtual ~InnerOptimizer() = default;
  /// One update from gradients_P with this step's learning rate and decoupled decay coefficient.
  void step(double lr, double weight_decay) {
    ++num_updates_;
    update(lr, weight_decay);
  }
  /// Moments (P,), by the names they have in a checkpoint. Empty for plain SGD. Muon: running means
  /// of the gradient everywhere, of its square (zero for the hidden matrices).
  virtual std::vector<std::pair<std::string, at::Tensor>> state() = 0;
  /// Updates made so far: AdamW's bias correction depends on it.
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t num_updates) { num_updates_ = num_updates; }

 private:
  /// Number num_updates().
  virtual void update(double lr, double weight_decay) = 0;

  int64_t num_updates_ = 0;
};

std::unique_ptr<InnerOptimizer> make_inner_optimizer(const method::TrainOptions& options,
                                                     OptimizerTarget target);

/// The L2 norm of the gradient, after which it is scaled so that the norm is at most `max_norm`
/// (0 = not scaled), as torch.nn.utils.clip_grad_norm_ does it.
double clip_gradient(const at::Tensor& gradients_P, double max_norm);

}  // namespace atl::train
