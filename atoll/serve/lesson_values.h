#pragma once
// Tensors in pieces that go into messages, and back. Pure.
//
// Shapes: P = values of an adapter or their gradients, B = texts, T = tokens, C = hidden size.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/chain/messages.h"

namespace atl::serve {

struct ValuesPart {
  int64_t begin = 0;
  Bytes bytes;  // FP32.
};

/// Throws InputError where a value is not finite: the whole of it is of no use then.
std::vector<ValuesPart> parts_of(const at::Tensor& values_P);
/// Puts them from `begin` on; how many. Throws InputError where they do not fit, or are not finite.
int64_t put_values(const Bytes& bytes, int64_t begin, const at::Tensor& values_P);

/// All rows, one text behind the other. Throws InputError where a value is not finite.
std::vector<chain::Rows> rows_of(const at::Tensor& x_BTC, chain::Precision precision);
/// Puts rows to their places. Throws InputError where they do not fit, or are not finite.
void put_rows(const chain::Rows& rows, const at::Tensor& x_BTC);

}  // namespace atl::serve
