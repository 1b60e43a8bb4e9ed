#include "atoll/train/inner_optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include "atoll/base/error.h"
#include "atoll/train/muon.h"

namespace atl::train {
namespace {

using Spans = std::vector<std::pair<int64_t, int64_t>>;

/// What of `spans` lies outside `holes`; both ascending, each hole inside one span.
Spans without(const Spans& spans, const Spans& holes) {
  Spans rest;
  auto hole = holes.begin();
  for (const auto& [begin, end] : spans) {
    int64_t position = begin;
    for (; hole != holes.end() && hole->second <= end; ++hole) {
      if (hole->first > position) rest.emplace_back(position, hole->first);
      position = hole->second;
    }
    if (position < end) rest.emplace_back(position, end);
  }
  return rest;
}

std::vector<at::Tensor> views(const at::Tensor& x_P, const Spans& spans) {
  std::vector<at::Tensor> views;
  for (const auto& [begin, end] : spans) views.push_back(x_P.slice(0, begin, end));
  return views;
}

/// AdamW (Loshchilov & Hutter 2019) of some spans of P, by LibTorch's fused kernel: one pass over
/// memory.
class AdamWSpans {
 public:
  AdamWSpans(const method::TrainOptions& options, const OptimizerTarget& target,
             const at::Tensor& mean_P, const at::Tensor& square_P, const Spans& spans)
      : beta1_(options.beta1),
        beta2_(options.beta2),
        eps_(options.eps),
        values_(views(target.values_P, spans)),
        gradients_(views(target.gradients_P, spans)),
        means_(views(mean_P, spans)),
        squares_(views(square_P, spans)) {}

  /// Update number `count`, from 1: the bias correction depends on it.
  void update(int64_t count, double lr, double weight_decay) {
    if (values_.empty()) return;
    const at::Tensor count_tensor =
        at::full({}, static_cast<double>(count), values_[0].options().dtype(at::kFloat));
    const std::vector<at::Tensor> counts(values_.size(), count_tensor);
    at::_fused_adamw_(values_, gradients_, means_, squares_, {}, counts, lr, beta1_, beta2_,
                      weight_decay, eps_, /*amsgrad=*/false, /*maximize=*/false);
  }

 private:
  double beta1_;
  double beta2_;
  double eps_;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> means_;
  std::vector<at::Tensor> squares_;
};

Spans everything(const OptimizerTarget& target) { return {{0, target.values_P.numel()}}; }

class AdamW final : public InnerOptimizer {
 public:
  AdamW(const method::TrainOptions& options, const OptimizerTarget& target)
      : mean_P_(at::zeros_like(target.values_P)),
        square_P_(at::zeros_like(target.values_P)),
        decayed_(options, target, mean_P_, square_P_, target.decayed),
        plain_(options, target, mean_P_, square_P_, without(everything(target), target.decayed)) {}

  void update(double lr, double weight_decay) override {
    decayed_.update(num_updates(), lr, weight_decay);
    plain_.update(num_updates(), lr, 0.0);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override {
    return {{"adamw.exp_avg", mean_P_}, {"adamw.exp_avg_sq", square_P_}};
  }

 private:
  at::Tensor mean_P_;
  at::Tensor square_P_;
  AdamWSpans decayed_;
  AdamWSpans plain_;
};

Spans spans_of(const std::vector<MatrixPlace>& matrices) {
  Spans spans;
  for (const MatrixPlace& matrix : matrices) spans.emplace_back(matrix.begin, matrix.end());
  return spans;
}

/// Muon for the hidden matrices, AdamW for the rest. Per matrix, with mu = muon_momentum:
///   mean'  = mu * mean + (1 - mu) * g
///   theta' = theta - lr * decay * theta
///            - lr * ratio * muon_scale * orthogonalize((1 - mu) * g + mu * mean')   (Nesterov)
class Muon final : public InnerOptimizer {
 public:
  Muon(const method::TrainOptions& options, const OptimizerTarget& target)
      : momentum_(options.muon_momentum),
        lr_ratio_(options.muon_lr_ratio),
        mean_P_(at::zeros_like(target.values_P)),
        square_P_(at::zeros_like(target.values_P)),
        decayed_(options, target, mean_P_, square_P_,
                 without(target.decayed, spans_of(target.hidden))),
        plain_(options, target, mean_P_, square_P_, without(everything(target), target.decayed)) {
    for (const MatrixPlace& place : target.hidden) {
      const auto view = [&](const at::Tensor& x_P) {
        return x_P.slice(0, place.begin, place.end()).view({place.num_outputs, place.num_inputs});
      };
      matrices_.push_back({.value_OI = view(target.values_P),
                           .gradient_OI = view(target.gradients_P),
                           .mean_OI = view(mean_P_),
                           .scale = muon_scale(place.num_outputs, place.num_inputs)});
    }
  }

  void update(double lr, double weight_decay) override {
    for (Matrix& matrix : matrices_) {
      matrix.mean_OI.lerp_(matrix.gradient_OI, 1 - momentum_);
      const at::Tensor direction_OI =
          orthogonalize(matrix.gradient_OI.lerp(matrix.mean_OI, momentum_));
      matrix.value_OI.mul_(1 - lr * weight_decay);
      matrix.value_OI.sub_(direction_OI, lr * lr_ratio_ * matrix.scale);
    }
    decayed_.update(num_updates(), lr, weight_decay);
    plain_.update(num_updates(), lr, 0.0);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override {
    return {{"muon.exp_avg", mean_P_}, {"muon.exp_avg_sq", square_P_}};
  }

 private:
  struct Matrix {
    at::Tensor value_OI;
    at::Tensor gradient_OI;
    at::Tensor mean_OI;
    double scale = 0;
  };
  double momentum_;
  double lr_ratio_;
  at::Tensor mean_P_;
  at::Tensor square_P_;
  AdamWSpans decayed_;
  AdamWSpans plain_;
  std::vector<Matrix> matrices_;
};

/// theta -= lr * (gradient + decay * theta): no momentum, for identities and comparisons.
class Sgd final : public InnerOptimizer {
 public:
  explicit Sgd(const OptimizerTarget& target)
      : target_(target), decayed_(views(target.values_P, target.decayed)) {}

  void update(double lr, double weight_decay) override {
    if (weight_decay != 0) {
      for (at::Tensor& values : decayed_) values.mul_(1 - lr * weight_decay);
    }
    target_.values_P.sub_(target_.gradients_P, lr);
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override { return {}; }

 private:
  OptimizerTarget target_;
  std::vector<at::Tensor> decayed_;
};

}  // namespace

OptimizerTarget target_of(const model::Parameters& parameters) {
  OptimizerTarget target{.values_P = parameters.values_P(),
                         .gradients_P = parameters.gradients_P(),
                         .decayed = {},
                         .hidden = {}};
  for (const weights::ParameterSpec& spec : parameters.specs()) {
    const std::vector<weights::ParameterSpec> parts = spec.parts();
    if (parts.front().shape.size() < 2) continue;
    auto& decayed = target.decayed;
    if (!decayed.empty() && decayed.back().second == spec.offset) {
      decayed.back().second += spec.size;  // Neighbours are one span: fewer kernels.
    } else {
      decayed.emplace_back(spec.offset, spec.offset + spec.size);
    }
    if (spec.layer < 0) continue;
    for (const weights::ParameterSpec& part : parts) {
      target.hidden.push_back({part.offset, part.shape[0], part.shape[1]});
    }
  }
  return target;
}

std::unique_ptr<InnerOptimizer> make_inner_optimizer(const method::TrainOptions& options,
                                                     OptimizerTarget target) {
  if (options.optimizer == "adamw") return std::make_unique<AdamW>(options, target);
  if (options.optimizer == "muon") return std::make_unique<Muon>(options, target);
  if (options.optimizer == "sgd") return std::make_unique<Sgd>(target);
  throw UsageError("unknown train.optimizer '" + options.optimizer + "'");
}

double clip_gradient(const at::Tensor& gradients_P, double max_norm) {
  const double norm = at::linalg_vector_norm(gradients_P).item<double>();
  if (max_norm > 0 && norm > max_norm) gradients_P.mul_(max_norm / (norm + 1e-6));
  return norm;
}

}  // namespace atl::train
