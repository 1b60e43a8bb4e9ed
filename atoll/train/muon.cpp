#include "atoll/train/muon.h"

#include <ATen/ops/linalg_vector_norm.h>

#include <algorithm>
#include <cmath>

#include "atoll/model/matmul.h"

namespace atl::train {
namespace {

constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;
constexpr int kSteps = 5;
constexpr double kEps = 1e-7;
constexpr double kUpdateRms = 0.2;

}  // namespace

at::Tensor orthogonalize(const at::Tensor& x_OI) {
  const bool is_tall = x_OI.size(0) > x_OI.size(1);
  at::Tensor x_RC = is_tall ? x_OI.t() : x_OI;  // R <= C: the smaller products.
  x_RC = x_RC.div(at::linalg_vector_norm(x_RC).add(kEps));
  for (int i = 0; i < kSteps; ++i) {
    const at::Tensor a_RR = model::product(x_RC, x_RC.t());
    const at::Tensor b_RR = model::product(a_RR, a_RR).mul_(kC).add_(a_RR, kB);
    x_RC = model::product(b_RR, x_RC).add_(x_RC, kA);
  }
  return is_tall ? x_RC.t() : x_RC;
}

double muon_scale(int64_t num_outputs, int64_t num_inputs) {
  return kUpdateRms * std::sqrt(static_cast<double>(std::max(num_outputs, num_inputs)));
}

}  // namespace atl::train
