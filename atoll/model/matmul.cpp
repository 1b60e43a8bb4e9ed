#include "atoll/model/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

// LibTorch's own way to oneDNN, which no header of its names. Without it, say in another version,
// everything goes LibTorch's usual way.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out,
                                         float beta, float alpha);
}

namespace atl::model {
namespace {

/// Multiplications from which on oneDNN's cost for a call, some 15 us, is small.
constexpr int64_t kLarge = int64_t{1} << 22;

bool has_onednn() {
#if defined(__x86_64__)
  static const bool answer = at::native::mkldnn_matmul != nullptr && __builtin_cpu_is("amd") &&
                             __builtin_cpu_supports("avx512f");
  return answer;
#else
  return false;
#endif
}

}  // namespace

void matmul(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
            bool accumulates) {
  const bool is_large = out_MN.numel() * a_MK.size(1) >= kLarge;
  if (is_large && has_onednn() && out_MN.is_cpu() && out_MN.scalar_type() == at::kFloat) {
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

}  // namespace atl::model
