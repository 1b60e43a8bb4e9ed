#pragma once
// Products in tiles, of factors that are packed into panels. AVX-512 multiplies BF16 at twice the
// speed of FP32's own arithmetic, Intel's AMX at 16 times; both sum in FP32. With AMX, FP32 factors
// go as three BF16s each, of whose products six are taken (tile_kernel.h): as exact as FP32 sums of
// so many products are, at up to 2.7 times their speed.
// Of FP32 magnitudes below 1e-31 lose their last bits, those below 1e-38 count as zero. Those
// above 3.39e38 count as infinite, and what is infinite gives NaN. A result's bits depend on its
// shape and on what multiplies, not on the number of threads.
//
// Shapes: out_MN = a_MK b_KN.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace atl::model {

/// For factors of this type: FP32 wants AMX, BF16 that or AVX-512 for BF16.
bool has_tiles(at::ScalarType factors);

/// Of BF16 factors into BF16: the depth that is summed before it is rounded.
inline constexpr int64_t kMostDepthIntoBf16 = 2048;

/// out_MN = a_MK b_KN, or += where it `accumulates`; where has_tiles() of their type. out_MN is
/// FP32 with dense rows, or BF16, if the factors are, K is at most kMostDepthIntoBf16, and nothing
/// is added. Of each factor rows or columns are dense.
void multiply_by_tiles(const at::Tensor& out_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                       bool accumulates);

}  // namespace atl::model
