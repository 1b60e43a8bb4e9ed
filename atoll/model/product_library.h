#pragma once
// Matrix products by each library that there is: those that LibTorch brings, called past LibTorch
// where that chooses another one. Without autograd.
//
// Shapes: out_MN = a_MK b_KN, or out_MN += a_MK b_KN.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/model/product_choice.h"

namespace atl::model {

/// Nothing: only LibTorch itself multiplies such.
std::optional<ProductTypes> product_types(const at::Tensor& out_MN, const at::Tensor& a_MK,
                                          const at::Tensor& b_KN);

/// Its rows may lie apart.
bool has_dense_rows(const at::Tensor& out_MN);

/// Those that can multiply these types here, of which each was tried on a small product. The first
/// is the usual one: that which the CPU's kind suggests.
const std::vector<Library>& libraries_for(ProductTypes types);

/// By this one, on the CPU. out_MN has dense rows; a_MK and b_KN may have any strides. BF16 is
/// never added to. kOneDnn rounds what it makes of BF16 to BF16, also where FP32 is asked for.
void multiply_by(Library library, const at::Tensor& out_MN, const at::Tensor& a_MK,
                 const at::Tensor& b_KN, bool accumulates);

/// Values of which none is like its neighbours, in FP32: the processor's time may hang on them.
at::Tensor waves(int64_t rows, int64_t columns);

/// All that speeds of products hang on here but the number of threads: processor and LibTorch.
std::string product_machine();

}  // namespace atl::model
