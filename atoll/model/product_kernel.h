#pragma once
// The innermost loops of products.cpp for one instruction set. Three translation units hold them,
// compiled for AVX-512, for AVX2 and for any processor (product_loops.h); each gives the same bits:
// every value is one chain of fused multiply-adds, in order of k, whatever the registers' width.
#include <cstdint>
#include <span>

namespace atl::model {

constexpr int64_t kMaxLanes = 32;
constexpr int64_t kMaxRows = 14;

/// A panel holds one factor of `lanes` neighbouring outputs: for each k a value for each of them.
struct ProductKernel {
  int64_t lanes;     // At most kMaxLanes.
  int64_t max_rows;  // At most kMaxRows, of x, that are multiplied at a time.
  /// panel[k * lanes + lane] = rows[lane][k] for k < count: floats at any address.
  void (*pack)(const void* const* rows, int64_t count, float* panel);
  /// The same of bfloat16.
  void (*pack_bf16)(const void* const* rows, int64_t count, float* panel);
  /// out[row * out_stride + lane] = fma(x[k * x_stride + row], panel[k * panel_stride + lane], ...)
  /// for k < count, on top of what is there if it `adds`, else of 0. num_rows: 1 to max_rows.
  void (*multiply)(int64_t num_rows, int64_t count, const float* x, int64_t x_stride,
                   const float* panel, int64_t panel_stride, float* out, int64_t out_stride,
                   bool adds);
};

/// The fastest one for this processor.
const ProductKernel& product_kernel();

/// All that this processor can run, the plain one first: for those who compare them.
std::span<const ProductKernel* const> product_kernels();

extern const ProductKernel kPlainProduct;
#if defined(__x86_64__)
extern const ProductKernel kAvx2Product;    // And FMA.
extern const ProductKernel kAvx512Product;  // F, BW, DQ, VL.
#endif

}  // namespace atl::model
