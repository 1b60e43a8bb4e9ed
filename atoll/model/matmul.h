#pragma once
// Matrix products for the model. LibTorch gives FP32 products to MKL, whose code for AMD's CPUs
// leaves half of AVX-512 unused; oneDNN, which LibTorch brings too, is 2.2 times as fast there
// (matmul_bench.cpp). So large ones go to it on such CPUs. The choice depends on the machine
// and on the shapes alone: a run that resumes computes the same bits.
#include <ATen/core/Tensor.h>

namespace atl::model {

/// Whether large products go to oneDNN here.
bool uses_onednn();

/// out_MN = a_MK b_KN, or out_MN += a_MK b_KN when it `accumulates`. On any device, of one type;
/// out_MN is contiguous. Without autograd.
void matmul(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
            bool accumulates = false);

/// The same in a new tensor.
at::Tensor product(const at::Tensor& a_MK, const at::Tensor& b_KN);

}  // namespace atl::model
