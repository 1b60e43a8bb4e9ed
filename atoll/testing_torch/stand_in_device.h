#pragma once
// For tests where there is no GPU: a device to LibTorch ("stand_in") whose memory nobody may
// read or write but LibTorch's copies. Each operation is LibTorch's own for the CPU, on a copy.
// What it finds: tensors of the host and of the device in one operation, and code that follows a
// pointer into the device's memory, which ends the process. What it cannot find: other roundings,
// missing waits for a stream, operations that CUDA lacks.
//
// Include it in one file of a test; its device is there before main(). LibTorch's autograd knows
// one kind of device in a process, so where there is a GPU tests take that (a_device()).
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>

#include "atoll/base/check.h"

namespace atl::model::stand_in {

inline at::Device device() { return {at::kPrivateUse1, 0}; }

/// Pages that are mapped twice: where the device's tensors point nothing is allowed, `distance`
/// further on everything is. Addresses are not used again, their pages are given back.
class Memory final : public c10::Allocator {
 public:
  static Memory& get() {
    static Memory memory;
    return memory;
  }
  /// Where LibTorch's own copies find what the device has at `address`.
  void* seen_by_host(const void* address) const {
    return const_cast<std::byte*>(static_cast<const std::byte*>(address)) + distance_;
  }
  c10::DataPtr allocate(size_t size) override {
    const size_t begin = next_.fetch_add((size + kPage) / kPage * kPage);  // Never nothing.
    ATOLL_CHECK(begin + size < kSize);
    auto* const address = closed_ + begin;
    auto* const block = new Block{address, size};
    return {address, block, &Memory::release, device()};
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    std::memcpy(seen_by_host(to), seen_by_host(from), size);
  }

 private:
  struct Block {
    std::byte* address;
    size_t size;
  };
  static constexpr size_t kPage = 4096;
  static constexpr size_t kSize = size_t{1} << 35;  // Of addresses: pages are taken when touched.

  Memory() {
    const int file = memfd_create("stand-in device", 0);
    ATOLL_CHECK(file >= 0 && ftruncate(file, kSize) == 0);
    const auto map = [&](int protection) {
      void* const address = mmap(nullptr, kSize, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
      ATOLL_CHECK(address != MAP_FAILED);
      return static_cast<std::byte*>(address);
    };
    closed_ = map(PROT_NONE);
    distance_ = map(PROT_READ | PROT_WRITE) - closed_;
    close(file);
  }
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    const size_t pages = (block->size + kPage) / kPage * kPage;
    madvise(get().seen_by_host(block->address), pages, MADV_REMOVE);
  }

  std::byte* closed_ = nullptr;
  std::ptrdiff_t distance_ = 0;
  std::atomic<size_t> next_ = 0;
};

/// The same elements as a tensor of the CPU; one of the CPU itself.
inline at::Tensor on_host(const at::Tensor& x) {
  if (x.is_cpu()) return x;
  return at::from_blob(Memory::get().seen_by_host(x.const_data_ptr()), x.sizes(), x.strides(),
                       x.options().device(at::kCPU));
}

inline at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type,
                        std::optional<at::Layout> /*layout*/, std::optional<at::Device> /*device*/,
                        std::optional<bool> /*pinned*/, std::optional<at::MemoryFormat> format) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_generic(sizes, &Memory::get(), keys, type.value_or(at::kFloat), format);
}

inline at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                                std::optional<at::ScalarType> type,
                                std::optional<at::Layout> /*layout*/,
                                std::optional<at::Device> /*device*/,
                                std::optional<bool> /*pinned*/) {
  const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::empty_strided_generic(sizes, strides, &Memory::get(), keys,
                                           type.value_or(at::kFloat));
}

inline at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*non_blocking*/) {
  on_host(to).copy_(on_host(from));
  return to;
}

inline at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) {  // An output, whose elements nobody wants.
    const at::Tensor fresh = at::empty_like(from, to.options());
    to.unsafeGetTensorImpl()->set_storage_keep_dtype(fresh.storage());
    to.unsafeGetTensorImpl()->set_sizes_and_strides(fresh.sizes(), fresh.strides());
  }
  return copy_from(from, to, false);
}

/// As CUDA does; of the host it takes numbers only. LibTorch's way to the CPU would take anything.
inline void require_on_device(const at::Tensor& x, const c10::OperatorHandle& operation) {
  TORCH_CHECK(!x.defined() || !x.is_cpu() || x.dim() == 0, "a tensor of the host in ",
              operation.schema().name(), " of the stand-in device");
}

inline void run_on_host(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  for (const c10::IValue& argument :
       torch::jit::last(*stack, operation.schema().arguments().size())) {
    if (argument.isTensor()) require_on_device(argument.toTensor(), operation);
    if (!argument.isTensorList()) continue;
    for (const at::Tensor& x : argument.toTensorVector()) require_on_device(x, operation);
  }
  at::native::cpu_fallback(operation, stack, /*error_on_views=*/true);
}

/// One stream, in which all is done when it is asked for.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<at::kPrivateUse1> {
  at::Device exchangeDevice(at::Device /*unused*/) const override { return device(); }
  at::Device getDevice() const override { return device(); }
  c10::Stream getStream(at::Device /*unused*/) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device());
  }
  c10::Stream exchangeStream(c10::Stream /*unused*/) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device());
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isAvailable() const override { return true; }
  bool isBuilt() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*unused*/) const override { return true; }
};

inline const bool kIsRegistered = [] {
  if (at::hasCUDA()) return false;
  c10::register_privateuse1_backend("stand_in");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

/// The GPU, or what stands in for it.
inline at::Device a_device() { return kIsRegistered ? device() : at::Device(at::kCUDA, 0); }

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace atl::model::stand_in
