#include "atoll/model/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

// LibTorch's own way to oneDNN, which no header of its names. Without it, or where it is not exact,
// everything goes LibTorch's usual way.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out,
                                         float beta, float alpha);
}

namespace atl::model {
namespace {

/// Multiplications from which on oneDNN's cost for a call, some 15 us, is small.
constexpr int64_t kLarge = int64_t{1} << 22;

bool gains_from_onednn() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

/// LibTorch may be built without oneDNN, and some versions round what it multiplies to BF16.
bool is_exact() {
  constexpr int64_t kSize = 48;
  const at::Tensor a_MK = at::arange(kSize * kSize, at::kFloat).sin().view({kSize, kSize});
  const at::Tensor out_MN = at::zeros_like(a_MK);
  try {
    at::native::mkldnn_matmul(a_MK, a_MK.t(), out_MN, 0.0F, 1.0F);
  } catch (const c10::Error&) {
    return false;
  }
  return at::allclose(out_MN, at::mm(a_MK, a_MK.t()), 1e-5, 1e-5);
}

}  // namespace

bool uses_onednn() {
  static const bool answer =
      gains_from_onednn() && at::native::mkldnn_matmul != nullptr && is_exact();
  return answer;
}

void matmul(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
            bool accumulates) {
  if (!out_MN.is_contiguous()) {  // (inputs, outputs) in memory: oneDNN writes rows.
    matmul(out_MN.t(), b_KN.t(), a_MK.t(), accumulates);
    return;
  }
  const bool is_large = out_MN.numel() * a_MK.size(1) >= kLarge;
  if (is_large && out_MN.is_cpu() && out_MN.scalar_type() == at::kFloat && uses_onednn()) {
    at::native::mkldnn_matmul(a_MK, b_KN, out_MN, accumulates ? 1.0F : 0.0F, 1.0F);
    return;
  }
  at::Tensor out = out_MN;
  if (accumulates) {
    out.addmm_(a_MK, b_KN);
  } else {
    at::mm_out(out, a_MK, b_KN);
  }
}

at::Tensor product(const at::Tensor& a_MK, const at::Tensor& b_KN) {
  const at::Tensor out_MN = at::empty({a_MK.size(0), b_KN.size(1)}, a_MK.options());
  matmul(out_MN, a_MK, b_KN);
  return out_MN;
}

}  // namespace atl::model
