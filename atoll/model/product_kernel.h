#pragma once
// The innermost loops of products for one instruction set: of rows with weights (products.h), and
// of panels (attention). Three translation units hold them, compiled for AVX-512, for AVX2 and for
// any processor; each gives the same bits, whatever the registers' width.
#include <cstdint>
#include <span>

namespace atl::model {

constexpr int64_t kMaxLanes = 32;  // Of a panel.
/// Chains of one dot product.
constexpr int64_t kSumLanes = 16;
/// Outputs whose sums are in registers at a time, at most.
constexpr int64_t kMostTileOutputs = 8;

/// What a panel holds.
enum class PanelFormat { kF32, kBF16 };
constexpr int64_t size_of(PanelFormat format) { return format == PanelFormat::kF32 ? 4 : 2; }

/// What dot products read where it lies: GGML's types of these names.
enum class WeightFormat { kF32, kBF16, kQ8_0, kQ4_0, kQ4_1, kQ4_K, kQ5_K, kQ6_K };

struct DotTask {
  int64_t num_rows;     // Of x, `x_stride` floats apart.
  int64_t num_outputs;  // `out_stride` floats from one row's to the next one's.
  int64_t count;        // Inputs.
  int64_t x_stride;
  int64_t out_stride;
  bool adds;  // To what `out` holds.
};

struct ProductKernel {
  using Multiply = void (*)(int64_t num_rows, int64_t count, const float* x, int64_t x_stride,
                            const void* panel, int64_t panel_stride, float* out, int64_t out_stride,
                            bool adds);
  using Dots = void (*)(const DotTask& task, const float* x, const void* const* weights,
                        float* out);

  int64_t lanes;     // Of a panel, at most kMaxLanes: for each k a value for each.
  int64_t max_rows;  // Of x, that are multiplied with a panel at a time.
  /// panel[k * lanes + lane] = rows[lane][k] for k < count: floats at any address.
  void (*pack)(const void* const* rows, int64_t count, float* panel);
  /// out[row * out_stride + lane] = fma(x[k * x_stride + row], panel[k * panel_stride + lane], ...)
  /// for k < count in order, on top of what is there if it `adds`, else of 0. num_rows: 1 to
  /// max_rows.
  Multiply multiply[2];  // By PanelFormat; strides are numbers of elements.
  /// out[row * out_stride + i] = dot product of row `row` of x and weights[i], whose values may lie
  /// at any address. It is kSumLanes chains of fused multiply-adds, chain l over the k that are l
  /// modulo kSumLanes (at the end: zeros), and then chain l + 8 is added to l, l + 4, l + 2, l + 1.
  /// kMostTileOutputs more of `weights` tell where the next call will read.
  Dots dots[8];  // By WeightFormat.
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
