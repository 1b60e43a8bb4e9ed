#include "atoll/train/inner_optimizer.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include "atoll/base/error.h"
#include "atoll/model/page_tensor.h"
#include "atoll/train/adamw_kernel.h"
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

/// Views of a buffer; of none, none.
std::vector<at::Tensor> views(const at::Tensor& x_P, const Spans& spans) {
  std::vector<at::Tensor> views;
  if (!x_P.defined()) return views;
  for (const auto& [begin, end] : spans) views.push_back(x_P.slice(0, begin, end));
  return views;
}

/// They stay for good, so on the CPU they are no part of the pool of large tensors, whose size
/// hangs on what is in use.
at::Tensor moment_zeros(const at::Tensor& values_P) {
  return values_P.is_cpu() ? model::page_zeros(values_P.numel(), values_P.scalar_type())
                           : at::zeros_like(values_P);
}

/// A product with 1 would be a pass over memory for nothing.
void scale(const at::Tensor& gradients, double factor) {
  if (factor != 1) gradients.mul_(factor);
}

/// AdamW (Loshchilov & Hutter 2019) of some spans of P: on the CPU in one pass over memory, on
/// other devices by LibTorch's kernels, between which gradients are read and written again.
class AdamWSpans {
 public:
  AdamWSpans(const method::TrainOptions& options, const OptimizerTarget& target,
             const at::Tensor& mean_P, const at::Tensor& square_P, const Spans& spans)
      : beta1_(options.beta1),
        beta2_(options.beta2),
        eps_(options.eps),
        clears_gradients_(!model::is_worth_forgetting(target.gradients_P)),
        values_(views(target.values_P, spans)),
        gradients_(views(target.gradients_P, spans)),
        means_(views(mean_P, spans)),
        squares_(views(square_P, spans)) {}

  /// Update number `count`, from 1: the bias correction depends on it. Whether the gradients are
  /// zero afterwards.
  bool update(int64_t count, const StepOptions& options) {
    if (values_.empty()) return true;
    if (!values_[0].is_cpu()) {
      update_by_libtorch(count, options);
      return false;
    }
    update_in_one_pass(count, options);
    return clears_gradients_;
  }

 private:
  void update_in_one_pass(int64_t count, const StepOptions& options) {
    for (size_t i = 0; i < values_.size(); ++i) {
      adamw({.count = values_[i].numel(),
             .values = values_[i].mutable_data_ptr<float>(),
             .gradients = gradients_[i].mutable_data_ptr<float>(),
             .means = means_[i].mutable_data_ptr<float>(),
             .squares = squares_[i].mutable_data_ptr<float>()},
            {.number = count,
             .gradient_scale = options.gradient_scale,
             .lr = options.lr,
             .weight_decay = options.weight_decay,
             .beta1 = beta1_,
             .beta2 = beta2_,
             .eps = eps_,
             .clears_gradients = clears_gradients_});
    }
  }

  void update_by_libtorch(int64_t count, const StepOptions& options) {
    for (const at::Tensor& gradients : gradients_) scale(gradients, options.gradient_scale);
    const at::Tensor count_tensor =
        at::full({}, static_cast<double>(count), values_[0].options().dtype(at::kFloat));
    const std::vector<at::Tensor> counts(values_.size(), count_tensor);
    at::_fused_adamw_(values_, gradients_, means_, squares_, {}, counts, options.lr, beta1_, beta2_,
                      options.weight_decay, eps_, /*amsgrad=*/false, /*maximize=*/false);
  }

  double beta1_;
  double beta2_;
  double eps_;
  bool clears_gradients_;
  std::vector<at::Tensor> values_;
  std::vector<at::Tensor> gradients_;
  std::vector<at::Tensor> means_;
  std::vector<at::Tensor> squares_;
};

/// What decay is applied to, and the rest.
class DecayedAndPlain {
 public:
  DecayedAndPlain(AdamWSpans decayed, AdamWSpans plain)
      : decayed_(std::move(decayed)), plain_(std::move(plain)) {}

  bool update(int64_t count, StepOptions options) {
    const bool cleared = decayed_.update(count, options);
    options.weight_decay = 0;
    return plain_.update(count, options) && cleared;
  }

 private:
  AdamWSpans decayed_;
  AdamWSpans plain_;
};

Spans everything(const OptimizerTarget& target) { return {{0, target.values_P.numel()}}; }

class AdamW final : public InnerOptimizer {
 public:
  AdamW(const method::TrainOptions& options, const OptimizerTarget& target)
      : InnerOptimizer(target),
        mean_P_(moment_zeros(target.values_P)),
        square_P_(moment_zeros(target.values_P)),
        spans_({options, target, mean_P_, square_P_, target.decayed},
               {options, target, mean_P_, square_P_, without(everything(target), target.decayed)}) {
  }

  bool update(const StepOptions& options) override { return spans_.update(num_updates(), options); }
  std::vector<std::pair<std::string, at::Tensor>> state() override {
    return {{"adamw.exp_avg", mean_P_}, {"adamw.exp_avg_sq", square_P_}};
  }

 private:
  at::Tensor mean_P_;
  at::Tensor square_P_;
  DecayedAndPlain spans_;
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
      : InnerOptimizer(target),
        momentum_(options.muon_momentum),
        lr_ratio_(options.muon_lr_ratio),
        mean_P_(moment_zeros(target.values_P)),
        square_P_(moment_zeros(target.values_P)),
        others_(
            {options, target, mean_P_, square_P_, without(target.decayed, spans_of(target.hidden))},
            {options, target, mean_P_, square_P_, without(everything(target), target.decayed)}) {
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

  bool update(const StepOptions& options) override {
    for (const Matrix& matrix : matrices_) {
      scale(matrix.gradient_OI, options.gradient_scale);
      matrix.mean_OI.lerp_(matrix.gradient_OI, 1 - momentum_);
      const at::Tensor direction_OI =
          orthogonalize(matrix.gradient_OI.lerp(matrix.mean_OI, momentum_));
      matrix.value_OI.mul_(1 - options.lr * options.weight_decay);
      matrix.value_OI.sub_(direction_OI, options.lr * lr_ratio_ * matrix.scale);
    }
    others_.update(num_updates(), options);
    return false;
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
  DecayedAndPlain others_;
  std::vector<Matrix> matrices_;
};

/// theta -= lr * (gradient + decay * theta): no momentum, for identities and comparisons.
class Sgd final : public InnerOptimizer {
 public:
  explicit Sgd(const OptimizerTarget& target)
      : InnerOptimizer(target), decayed_(views(target.values_P, target.decayed)) {}

  bool update(const StepOptions& options) override {
    if (options.weight_decay != 0) {
      for (at::Tensor& values : decayed_) values.mul_(1 - options.lr * options.weight_decay);
    }
    scale(target().gradients_P, options.gradient_scale);
    target().values_P.sub_(target().gradients_P, options.lr);
    return false;
  }
  std::vector<std::pair<std::string, at::Tensor>> state() override { return {}; }

 private:
  std::vector<at::Tensor> decayed_;
};

}  // namespace

void InnerOptimizer::step(const StepOptions& options) {
  ++num_updates_;
  if (!update(options)) model::clear(target_.gradients_P);
}

void InnerOptimizer::skip() { model::clear(target_.gradients_P); }

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

double gradient_norm(const at::Tensor& gradients_P) {
  return at::linalg_vector_norm(gradients_P).item<double>();
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? max_norm / (norm + 1e-6) : 1;
}

}  // namespace atl::train
