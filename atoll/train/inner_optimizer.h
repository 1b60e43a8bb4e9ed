#pragma once
// The inner optimiser on flat buffers: clips, updates, and leaves the gradients zero. On the CPU
// AdamW does all of it in one pass (adamw_kernel.h). Shape suffix: P = all parameters of the
// replica.
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

/// What a step is told.
struct StepOptions {
  double lr = 0;
  double weight_decay = 0;    // Decoupled.
  double gradient_scale = 1;  // clip_factor().
};

class InnerOptimizer {
 public:
  explicit InnerOptimizer(OptimizerTarget target) : target_(std::move(target)) {}
  virtual ~InnerOptimizer() = default;
  /// One update from gradients_P, which are zero afterwards: the next backward pass adds to them.
  /// Where it is worth it they are forgotten (model/page_tensor.h).
  void step(const StepOptions& options);
  /// No update, as where the gradients are not finite. They are zero afterwards all the same.
  virtual void skip();
  /// Moments (P,), by the names they have in a checkpoint. Empty for plain SGD. Muon: running means
  /// of the gradient everywhere, of its square (zero for the hidden matrices).
  virtual std::vector<std::pair<std::string, at::Tensor>> state() = 0;
  /// Updates made so far: AdamW's bias correction depends on it.
  int64_t num_updates() const { return num_updates_; }
  void set_num_updates(int64_t num_updates) { num_updates_ = num_updates; }

 protected:
  const OptimizerTarget& target() const { return target_; }

 private:
  /// Number num_updates(). Whether the gradients are zero afterwards, or anything.
  virtual bool update(const StepOptions& options) = 0;

  OptimizerTarget target_;
  int64_t num_updates_ = 0;
};

std::unique_ptr<InnerOptimizer> make_inner_optimizer(const method::TrainOptions& options,
                                                     OptimizerTarget target);

/// Their L2 norm.
double gradient_norm(const at::Tensor& gradients_P);

/// By what gradients of this norm are multiplied so that it is at most `max_norm` (0: by nothing),
/// as torch.nn.utils.clip_grad_norm_ does it.
double clip_factor(double norm, double max_norm);

}  // namespace atl::train
