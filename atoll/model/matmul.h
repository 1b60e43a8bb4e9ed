#pragma once
// Matrix products for the model. Large ones on the CPU go to the library that was quickest when one
// of their shape was first met on this machine (product_choice.h): MKL, oneDNN, or FP32 for BF16
// factors. All others go to the usual one. So a run that resumes computes the same bits.
#include <ATen/core/Tensor.h>

namespace atl::model {

/// out_MN = a_MK b_KN, or out_MN += a_MK b_KN when it `accumulates`. On any device; factors of one
/// type, which is that of out_MN too, or BF16 into FP32. BF16 is never added to. Rows or columns of
/// out_MN are dense. Without autograd. The first product throws UsageError when ATOLL_PRODUCTS is
/// wrong.
void matmul(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
            bool accumulates = false);

/// The same in a new tensor of their type.
at::Tensor product(const at::Tensor& a_MK, const at::Tensor& b_KN);

}  // namespace atl::model
