#include "atoll/train/muon.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>

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
    const at::Tensor a_RR = at::mm(x_RC, x_RC.t());
    const at::Tensor b_RR = at::addmm(a_RR, a_RR, a_RR, kB, kC);
    x_RC = at::addmm(x_RC, b_RR, x_RC, kA, 1.0);
  }
  return is_tall ? x_RC.t() : x_RC;
}

double muon_scale(int64_t num_outputs, int64_t num_inputs) {
  return kUpdateRms * std::sqrt(static_cast<double>(std::max(num_outputs, num_inputs)));
}

}  // namespace atl::train
