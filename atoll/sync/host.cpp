#include "atoll/sync/host.h"

#include <ATen/ops/zeros.h>

#include "atoll/base/check.h"

namespace atl::sync {

at::Tensor host_buffer(const at::Tensor& like_P) {
  return at::zeros({like_P.numel()}, at::TensorOptions().dtype(at::kFloat).device(at::kCPU));
}

std::span<float> span_of(const at::Tensor& host_P) {
  ATOLL_CHECK(host_P.device().is_cpu() && host_P.is_contiguous() &&
              host_P.scalar_type() == at::kFloat);
  return {host_P.mutable_data_ptr<float>(), static_cast<size_t>(host_P.numel())};
}

std::span<const std::byte> bytes_of(const at::Tensor& host_P) {
  return std::as_bytes(span_of(host_P));
}

}  // namespace atl::sync
