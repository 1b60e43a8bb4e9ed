#include "atoll/method/outer_optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/method/method.h"

namespace atl::method {
namespace {

/// 1 - base^exponent. By multiplication: std::pow may differ between machines in the last bit.
float bias_correction(float base, int64_t exponent) {
  double power = 1;
  for (int64_t i = 0; i < exponent && power != 0; ++i) power *= static_cast<double>(base);
  return static_cast<float>(1 - power);
}

template <typename Float>
bool fits(const OuterOptimizer& optimizer, const OuterSpans<Float>& spans, size_t size) {
  return spans.theta_P.size() == size &&
         spans.momentum_P.size() == (optimizer.has_momentum() ? size : 0) &&
         spans.square_P.size() == (optimizer.has_square() ? size : 0);
}

}  // namespace

void OuterOptimizer::step(int64_t number, std::span<const float> delta_P,
                          const OuterSpans<const float>& old, const OuterSpans<float>& next) const {
  const size_t size = delta_P.size();
  ATOLL_CHECK(fits(*this, old, size) && fits(*this, next, size) && number >= 1);
  switch (rule) {
    case OuterRule::kSgd:
      for (size_t i = 0; i < size; ++i) next.theta_P[i] = old.theta_P[i] - lr * delta_P[i];
      return;
    case OuterRule::kHeavyBall:
      for (size_t i = 0; i < size; ++i) {
        const float buf = momentum * old.momentum_P[i] + delta_P[i];
        next.momentum_P[i] = buf;
        next.theta_P[i] = old.theta_P[i] - lr * buf;
      }
      return;
    case OuterRule::kNesterov:
      for (size_t i = 0; i < size; ++i) {
        const float buf = momentum * old.momentum_P[i] + delta_P[i];
        next.momentum_P[i] = buf;
        next.theta_P[i] = old.theta_P[i] - lr * (delta_P[i] + momentum * buf);
      }
      return;
    case OuterRule::kAdam:
      adam_step(number, delta_P, old, next);
      return;
  }
}

AdamScales OuterOptimizer::adam_scales(int64_t number) const {
  return {.mean = lr / bias_correction(momentum, number),
          .root = std::sqrt(bias_correction(beta2, number))};
}

void OuterOptimizer::adam_step(int64_t number, std::span<const float> delta_P,
                               const OuterSpans<const float>& old,
                               const OuterSpans<float>& next) const {
  const auto [mean_scale, root_scale] = adam_scales(number);
  for (size_t i = 0; i < delta_P.size(); ++i) {
    const float mean = momentum * old.momentum_P[i] + (1 - momentum) * delta_P[i];
    const float square = beta2 * old.square_P[i] + (1 - beta2) * delta_P[i] * delta_P[i];
    next.momentum_P[i] = mean;
    next.square_P[i] = square;
    next.theta_P[i] = old.theta_P[i] - mean_scale * mean / (std::sqrt(square) / root_scale + eps);
  }
}

OuterOptimizer make_outer_optimizer(const SyncOptions& options) {
  OuterOptimizer optimizer{.lr = static_cast<float>(outer_lr(options)),
                           .momentum = static_cast<float>(options.outer_momentum),
                           .beta2 = static_cast<float>(options.outer_beta2),
                           .eps = static_cast<float>(options.outer_eps)};
  const std::string& name = options.outer_optimizer;
  if (name == "nesterov") {
    optimizer.rule = OuterRule::kNesterov;
  } else if (name == "heavy_ball") {
    optimizer.rule = OuterRule::kHeavyBall;
  } else if (name == "sgd") {
    optimizer.rule = OuterRule::kSgd;
  } else if (name == "adam") {
    optimizer.rule = OuterRule::kAdam;
  } else {
    throw UsageError(fmt::format("unknown sync.outer_optimizer '{}'", name));
  }
  return optimizer;
}

}  // namespace atl::method
