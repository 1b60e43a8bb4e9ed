#pragma once
// A layer of which nothing but what it reads is kept for its way back, where it is computed again
// (Chen et al. 2016, arXiv 1604.06174). The bits are those of the layer itself.
//
// Shapes: B = rows, T = tokens per row, C = hidden size.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "atoll/model/decoder.h"

namespace atl::model {

/// Decoder::layer() without a cache. The decoder outlives the graph.
at::Tensor checkpointed_layer(const Decoder& decoder, int64_t index, const at::Tensor& x_BTC,
                              LayerLosses* losses);

}  // namespace atl::model
