#pragma once
// The parts of Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) that are pure
// functions. Shape suffix: O, I = a weight matrix's outputs and inputs.
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace atl::train {

/// About U V^T of x = U S V^T (O, I), FP32: five steps of the quintic Newton-Schulz iteration
///   x <- x / (|x|_F + 1e-7);   x <- a x + (b A + c A A) x with A = x x^T
/// on the side with fewer rows, (a, b, c) = (3.4445, -4.7750, 2.0315). These coefficients grow
/// small singular values fast and leave them all near 1 (0.7 to 1.2) instead of at 1. A zero matrix
/// stays zero.
at::Tensor orthogonalize(const at::Tensor& x_OI);

/// What an orthogonal update (O, I) is multiplied by so that its root mean square is 0.2, about
/// that of AdamW's updates: 0.2 sqrt(max(O, I)) (Liu et al. 2025, arXiv 2502.16982, section 2.2).
/// Learning rate and weight decay of AdamW then serve for Muon.
double muon_scale(int64_t num_outputs, int64_t num_inputs);

}  // namespace atl::train
