#include "atoll/train/inner_optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include "atoll/base/error.h"

namespace atl::train {
namespace {

/// Views of `x_P`: first the decayed spans, then what lies between them.
struct Split {
  std::vector<at::Tensor> decayed;
  std::vector<at::Tensor> plain;
};

Split split(const at::Tensor& x_P, const std::vector<std::pair<int64_t, int64_t>>& decayed) {
  Split out;
  int64_t position = 0;
  for (const auto& [begin, end] : decayed) {
    if (begin > position) out.plain.push_back(x_P.slice(0, position, begin));
    out.decayed.push_back(x_P.slice(0, begin, end));
    position = end;
  }
  if (position < x_P.numel()) out.plain.push_back(x_P.slice(0, position, x_P.numel()));
  return out;
}

/// AdamW (Loshchilov & Hutter 2019) by LibTorch's fused kernel: one pass over memory.
class AdamW final : public InnerOptimizer {
 public:
  AdamW(const TrainOptions& options, const OptimizerTarget& target)
      : beta1_(options.beta1),
        beta2_(options.beta2),
        eps_(options.eps),
        mean_P_(at::zeros_like(target.values_P)),
        square_P_(at::zeros_like(target.values_P)),
        values_(split(target.values_P, target.decayed)),
        gradients_(split(target.gradients_P, target.decayed)),
        means_(split(mean_P_, target.decayed)),
        squares_(split(square_P_, target.decayed)) {}

  void step(double lr, double weight_decay) override {
    ++num_updates_;
    update(values_.decayed, gradients_.decayed, means_.decayed, squares_.decayed, lr, weight_decay);
    update(values_.plain, gradients_.plain, means_.plain, squares_.plain, lr, 0.0);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override {
    return {{"adamw.exp_avg", mean_P_}, {"adamw.exp_avg_sq", square_P_}};
  }
  int64_t num_updates() const override { return num_updates_; }
  void set_num_updates(int64_t num_updates) override { num_updates_ = num_updates; }

 private:
  void update(const std::vector<at::Tensor>& values, const std::vector<at::Tensor>& gradients,
              const std::vector<at::Tensor>& means, const std::vector<at::Tensor>& squares,
              double lr, double weight_decay) {
    if (values.empty()) return;
    const at::Tensor count =
        at::full({}, static_cast<double>(num_updates_), values[0].options().dtype(at::kFloat));
    const std::vector<at::Tensor> counts(values.size(), count);
    at::_fused_adamw_(values, gradients, means, squares, {}, counts, lr, beta1_, beta2_,
                      weight_decay, eps_, /*amsgrad=*/false, /*maximize=*/false);
  }

  double beta1_;
  double beta2_;
  double eps_;
  at::Tensor mean_P_;
  at::Tensor square_P_;
  Split values_;
  Split gradients_;
  Split means_;
  Split squares_;
  int64_t num_updates_ = 0;
};

/// theta -= lr * (gradient + decay * theta): no momentum, for identities and comparisons.
class Sgd final : public InnerOptimizer {
 public:
  explicit Sgd(const OptimizerTarget& target)
      : target_(target), decayed_(split(target.values_P, target.decayed).decayed) {}

  void step(double lr, double weight_decay) override {
    ++num_updates_;
    if (weight_decay != 0) {
      for (at::Tensor& values : decayed_) values.mul_(1 - lr * weight_decay);
    }
    target_.values_P.sub_(target_.gradients_P, lr);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override { return {}; }
  int64_t num_updates() const override { return num_updates_; }
  void set_num_updates(int64_t num_updates) override { num_updates_ = num_updates; }

 private:
  OptimizerTarget target_;
  std::vector<at::Tensor> decayed_;
  int64_t num_updates_ = 0;
};

}  // namespace

std::unique_ptr<InnerOptimizer> make_inner_optimizer(const TrainOptions& options,
                                                     OptimizerTarget target) {
  if (options.optimizer == "adamw") return std::make_unique<AdamW>(options, target);
  if (options.optimizer == "sgd") return std::make_unique<Sgd>(target);
  throw UsageError("unknown train.optimizer '" + options.optimizer + "'");
}

double clip_gradient(const at::Tensor& gradients_P, double max_norm) {
  const double norm = at::linalg_vector_norm(gradients_P).item<double>();
  if (max_norm > 0 && norm > max_norm) gradients_P.mul_(max_norm / (norm + 1e-6));
  return norm;
}

}  // namespace atl::train
