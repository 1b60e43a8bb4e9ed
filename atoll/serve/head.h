#pragma once
// What is before a model's layers and behind them, where those who read have it: tokens become what
// the first layer reads, and what the last one made becomes what was ordered of it.
//
// Shapes: T = tokens, C = hidden size.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/decoding/order.h"
#include "atoll/model/model.h"

namespace atl::serve {

/// FP32, in CPU memory, of tokens that follow those of which the cache has keys and values.
at::Tensor embed_TC(const model::Model& model, std::span<const int64_t> tokens,
                    model::KvCache& before);

struct Followed {
  decoding::Outcome outcome;
  std::string fault;  // Why there is none: weights that are damaged, mostly. Empty: there is one.
};
/// Of each row behind the last layer; the head is read once for all. The orders were checked.
std::vector<Followed> follow_orders(const model::Model& model, const at::Tensor& x_TC,
                                    std::span<const decoding::Order> orders);

}  // namespace atl::serve
