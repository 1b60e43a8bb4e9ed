#pragma once
// AdamW on FP32 values in memory, in one pass: clipped, updated, gradients zeroed. On a CPU with
// many cores per channel of memory, and where matrix products run on AMX, what such passes read and
// write is what an update costs.
//
// The bits are those of LibTorch's own passes (a product with the clip's factor, then
// at::_fused_adamw_ as it is built for AVX2, which it also takes on AVX-512), so that digests of
// runs hold: adamw_kernel_test.cpp compares them. Here they are the same on all processors, and for
// any number of threads.
#include <cstdint>

namespace atl::train {

/// Parameters that lie side by side, each pointer to `count` elements that overlap with no other's.
/// Where a span ends matters to the bits of up to seven elements before it: LibTorch's vectors have
/// eight, and it rounds what is left otherwise.
struct AdamWSpan {
  int64_t count = 0;
  float* values = nullptr;
  float* gradients = nullptr;
  float* means = nullptr;    // Of the gradient, running.
  float* squares = nullptr;  // Of its square.
};

/// Update `number` (from 1: the bias correction depends on it) of gradients times
/// `gradient_scale`.
struct AdamWUpdate {
  int64_t number = 1;
  double gradient_scale = 1;
  double lr = 0;
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  bool clears_gradients = true;  // They are zero afterwards; else what they were.
};

/// Loshchilov and Hutter 2019, algorithm 2.
void adamw(const AdamWSpan& span, const AdamWUpdate& update);

}  // namespace atl::train
