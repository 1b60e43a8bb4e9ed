#pragma once
// Layers that stay as they are, forwards and backwards, with the adapter that is trained beside
// them. All goes layer by layer, and each layer's gradients are tensors of their own: so the bits
// do not hang on how layers are cut into spans, nor on whether a layer is read again for its way
// back or was kept. A micro-batch at a time.
//
// Shapes: B = rows, T = tokens per row, C = hidden size, P = the adapter's values.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "atoll/model/adapter.h"
#include "atoll/model/decoder.h"

namespace atl::model {

/// A layer on its way: what it has read, and what it made, with the graph between them.
struct KeptLayer {
  int64_t index = 0;
  at::Tensor x_BTC;
  at::Tensor y_BTC;  // Undefined: it is read again.
};

/// One layer, ready for its way back.
KeptLayer keep_layer(const Decoder& decoder, int64_t index, const at::Tensor& x_BTC,
                     const Adapter& adapter);

/// The gradient of what the layer has read, from that of what it made. The gradients of its parts
/// are written to their places in gradients_P, of whose layers the adapter is.
at::Tensor go_back(const Decoder& decoder, KeptLayer layer, const at::Tensor& dy_BTC,
                   const Adapter& adapter, const at::Tensor& gradients_P);

/// What the layers make of x, as keep_layer() would.
at::Tensor go_forwards(const Decoder& decoder, LayerRange layers, const at::Tensor& x_BTC,
                       const Adapter& adapter);

/// Bytes of a layer's graph for so many tokens, about.
int64_t bytes_of_graph(const weights::ModelConfig& config, int64_t num_tokens);

}  // namespace atl::model
