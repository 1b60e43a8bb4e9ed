#pragma once
// Causal grouped-query attention on FP32 in memory, forward and backward, a tile of queries at a
// time: scores exist for one tile only, keys behind the diagonal or before the window are
// never read, and key-value heads are used where they lie instead of being repeated. On matrices
// this small LibTorch's own kernel spends most of its time outside the matrix products
// (docs/architecture.md has the figures).
//
// The matrix products are the BLAS that LibTorch brings (sgemm_); without one there is no kernel
// and the caller takes LibTorch's. Those of BF16 are oneDNN's small ones (attention_bf16.cpp);
// where the CPU has none, they are made in FP32. Threads share out (row, key-value head); each sum
// has one order.
//
// Shapes: B = rows, T = positions, F = (H + 2 G) N, H = query heads, G = key-value heads, N = head
// size. A row of qkv_BTF holds the queries of all heads, then the keys, then the values.
#include <c10/util/BFloat16.h>

#include <cstdint>

namespace atl::model {

struct AttentionShape {
  int64_t batch = 0;
  int64_t positions = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_size = 0;
  int64_t window = 0;  // Positions that a query sees, its own included; 0: all before it.
  float scale = 1;     // Of scores.

  int64_t row_width() const { return (num_heads + 2 * num_kv_heads) * head_size; }
};

bool attention_kernel_available();

/// out_BTHN = softmax(scale q k^T, causal, within the window) v; log_sums_BHT (log of the
/// softmax denominators) is kept for the backward pass.
void attention_forward(const AttentionShape& shape, const float* qkv_BTF, float* out_BTHN,
                       float* log_sums_BHT);

void attention_forward(const AttentionShape& shape, const c10::BFloat16* qkv_BTF,
                       c10::BFloat16* out_BTHN, float* log_sums_BHT);

/// Writes all of dqkv_BTF. FlashAttention's recomputation (Dao et al. 2022, section 3.1).
void attention_backward(const AttentionShape& shape, const float* qkv_BTF, const float* out_BTHN,
                        const float* dout_BTHN, const float* log_sums_BHT, float* dqkv_BTF);
void attention_backward(const AttentionShape& shape, const c10::BFloat16* qkv_BTF,
                        const c10::BFloat16* out_BTHN, const c10::BFloat16* dout_BTHN,
                        const float* log_sums_BHT, c10::BFloat16* dqkv_BTF);

}  // namespace atl::model
