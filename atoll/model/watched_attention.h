#pragma once
// For those who study what attention reads without being part of it: while one of these lives,
// queries, keys and values of every layer pass through its hands on their way from the projection
// to the turning by positions. Of its thread alone; they do not nest.
//
// Shapes: B = rows, T = positions, F as in attention_kernel.h.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace atl::model {

class WatchedAttention {
 public:
  /// Gives what attention is to read in place of qkv_BTF: the same, or with other gradients.
  using Visit = std::function<at::Tensor(int64_t layer, const at::Tensor& qkv_BTF)>;

  explicit WatchedAttention(Visit visit);
  ~WatchedAttention();
  WatchedAttention(const WatchedAttention&) = delete;
  WatchedAttention& operator=(const WatchedAttention&) = delete;

  /// As the visitor says, where there is one.
  static at::Tensor pass(int64_t layer, const at::Tensor& qkv_BTF);

 private:
  Visit visit_;
};

}  // namespace atl::model
