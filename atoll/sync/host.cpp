#include "atoll/sync/host.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstring>

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

at::Tensor view_of(std::span<const std::byte> bytes) {
  // from_blob() has no way to say that nobody writes there.
  return at::from_blob(const_cast<std::byte*>(bytes.data()),
                       {static_cast<int64_t>(bytes.size() / sizeof(float))}, at::kFloat);
}

Digest quick_digest(std::span<const std::byte> bytes) {
  Digest digest{};
  const uint64_t hash = xxh3(bytes.data(), bytes.size());
  std::memcpy(digest.data(), &hash, sizeof(hash));
  return digest;
}

Digest step_digest(const at::Tensor& result_P, const at::Tensor& live_P) {
  return Sha256()
      .update(tree_digest(bytes_of(result_P)))
      .update(tree_digest(bytes_of(live_P)))
      .finish();
}

}  // namespace atl::sync
