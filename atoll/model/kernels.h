#pragma once
// Loops over rows in memory, where LibTorch has only chains of operations on the CPU: each
// reads its input once and writes its output once. Templates are there for T = float and
// c10::BFloat16; sums, weights and their gradients are FP32 in both. Compiled for several
// instruction sets, the best is chosen when the program starts. Rows are shared out to LibTorch's
// threads; sums over rows are made in fixed blocks, so results do not depend on the number of
// threads.
//
// Plain pointers, contiguous rows unless a stride is given; nothing overlaps unless said.
#include <c10/util/BFloat16.h>

#include <cstdint>
#include <span>

namespace atl::model {

/// A matrix of rows in memory.
struct Rows {
  int64_t count = 0;
  int64_t width = 0;  // Elements per row.
};

/// sum = x + delta (both skipped when delta is null), y = sum * weight / rms(sum);
/// inverse_rms (count) is kept for the backward pass. RMSNorm: Zhang & Sennrich 2019, equation 4.
template <typename T>
void rms_norm_forward(Rows rows, const T* x, const T* delta, const float* weight, float epsilon,
                      T* sum, T* y, float* inverse_rms);

/// x is what was normalised. dx = gradient through the norm + dsum (unless null); dweight is added
/// to. Unless it is null, y is made again, which may be where dy is.
template <typename T>
void rms_norm_backward(Rows rows, const T* dy, const T* dsum, const T* x, const float* weight,
                       const float* inverse_rms, T* dx, float* dweight, T* y);

/// The same for parts of rows: num_heads heads of head_size elements at the start of rows that are
/// `stride` apart, each normalised by itself with one weight (head_size). inverse_rms holds
/// rows x num_heads values.
struct HeadShape {
  int64_t num_rows = 0;
  int64_t stride = 0;
  int64_t num_heads = 0;
  int64_t head_size = 0;
};
template <typename T>
void head_norm_forward(const HeadShape& shape, const T* x, const float* weight, float epsilon, T* y,
                       float* inverse_rms);
template <typename T>
void head_norm_backward(const HeadShape& shape, const T* dy, const T* x, const float* weight,
                        const float* inverse_rms, T* dx, float* dweight);

/// y = silu(gate) * up, where a row of gate_up holds `width` gates, then `width` ups (Shazeer
/// 2020).
template <typename T>
void swiglu_forward(Rows rows, const T* gate_up, T* y);
/// Also y once more, which may lie where dy does, unless it is null.
template <typename T>
void swiglu_backward(Rows rows, const T* dy, const T* gate_up, T* dgate_up, T* y);

/// y = gelu(x), with tanh (Hendrycks and Gimpel 2016).
void gelu_tanh_forward(Rows rows, const float* x, float* y);
/// y = gelu(gate) * up, with tanh, where they lie as for swiglu_forward().
void geglu_forward(Rows rows, const float* gate_up, float* y);
/// gpt-oss's, where each gate lies beside its up: operations.h.
void clamped_swiglu_forward(Rows rows, const float* gate_up, float* y);

/// Turns pairs (i, i + R/2) of the first R elements of each head by their position's angle, in
/// place (Su et al. 2021, in the half-split layout of Hugging Face); cos and sin are (count, R/2).
/// Row r has position r % count.
enum class Turn { kForwards, kBackwards };
struct Positions {
  int64_t count = 0;
  int64_t rotary_size = 0;  // R, at most the head's.
};
template <typename T>
void rotate(const HeadShape& shape, Positions positions, T* x, const float* cos_TR,
            const float* sin_TR, Turn turn);

/// weight_VC's gradient: dweight[tokens[r]] += dy[r], in order of r.
template <typename T>
void embedding_backward(Rows rows, const int64_t* tokens, const T* dy, float* dweight);

/// Per row of logits: cross entropy and squared log-partition, and, when `scale` is not 0,
/// scale * d(cross_entropy + z_loss * log(Z)^2)/d(logits), which may be written over the logits;
/// they are overwritten in any case. A negative target makes all of them zero. `losses` and
/// `squares` hold one value per row.
struct SoftmaxLoss {
  float z_loss = 0;
  float scale = 0;
};
template <typename T>
void softmax_loss(Rows rows, float* logits, const int64_t* targets, const SoftmaxLoss& options,
                  float* losses, float* squares, T* dlogits);

/// A token that is asked for behind a row of logits.
struct RowTarget {
  int64_t row = 0;
  int64_t id = 0;
};
/// Of each target, the log-probability to 1e-7 of it, and how many logits of its row are larger.
/// Rows and ids lie within `rows`. The same bits on every processor.
void score_rows(Rows rows, const float* logits, std::span<const RowTarget> targets,
                double* log_probabilities, int64_t* num_larger);

}  // namespace atl::model
