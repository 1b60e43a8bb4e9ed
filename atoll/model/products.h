#pragma once
// Products with weights as their files hold them, for those who evaluate and generate: the weights
// are widened to FP32 on their way into the product. Every value is a sum in an order of its own
// (product_kernel.h): its bits depend neither on how many rows are multiplied at once, nor on
// threads, nor on the instruction set.
// Training keeps LibTorch's products (matmul.h).
//
// Shapes: M = rows, N = outputs, K = inputs.
#include <cstdint>
#include <optional>
#include <vector>

#include "atoll/model/product_kernel.h"
#include "atoll/weights/stored_tensor.h"

namespace atl::model {

/// A matrix (outputs, inputs): tensors whose outputs follow on each other. Never changes, and may
/// be shared by threads; the tensors' bytes outlive it.
class StoredMatrix {
 public:
  /// One with inputs first stands alone.
  explicit StoredMatrix(std::vector<weights::StoredTensor> tensors);
  int64_t num_outputs() const { return num_outputs_; }
  int64_t num_inputs() const { return num_inputs_; }

  /// The weights of one output: `row_K` has room for all of them.
  void read_output(int64_t output, float* row_K) const;
  /// out_MN = x_MK W^T, with the threads that LibTorch uses.
  void multiply(int64_t num_rows, const float* x_MK, float* out_MN,
                const ProductKernel& kernel = product_kernel()) const;

 private:
  class Panel;
  void multiply_block(int64_t num_rows, const float* x_MK, float* out_MN, int64_t begin,
                      int64_t end, const ProductKernel& kernel) const;
  struct Place {
    const weights::StoredTensor* tensor;
    int64_t row;
    const std::byte* begin;  // Of the row.
  };
  Place place_of(int64_t output) const;

  std::vector<weights::StoredTensor> tensors_;
  std::vector<int64_t> row_bytes_;      // Of each one.
  std::optional<WeightFormat> format_;  // Of all of them, where dot products read it.
  bool has_inputs_first_;               // A single tensor with a row per input.
  int64_t num_outputs_ = 0;
  int64_t num_inputs_ = 0;
};

}  // namespace atl::model
