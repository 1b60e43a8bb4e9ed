#include "atoll/model/page_tensor.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/progress.h"

namespace atl::model {

at::Tensor page_zeros(int64_t size, at::ScalarType type) {
  const size_t bytes =
      std::max<size_t>(1, static_cast<size_t>(size) * c10::elementSize(type));  // No map is empty.
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw InputError(fmt::format("there is no memory for {} of parameters", format_bytes(bytes)));
  }
  return at::from_blob(
      memory, {size}, [bytes](void* mapped) { ::munmap(mapped, bytes); },
      at::TensorOptions().dtype(type));
}

void forget(const at::Tensor& values) {
  ATOLL_CHECK(values.is_cpu() && values.is_contiguous());
  if (values.numel() == 0) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(values.mutable_data_ptr());
  const auto end = begin + values.nbytes();
  const uintptr_t first = std::min(end, (begin + page - 1) / page * page);
  const uintptr_t last = std::max(first, end / page * page);
  const auto zero = [](uintptr_t from, uintptr_t to) {
    std::memset(reinterpret_cast<void*>(from), 0, to - from);
  };
  zero(begin, first);
  zero(last, end);
  if (first == last) return;
  // The kernel would join what is left to a huge page, and fill it up again.
  ::madvise(reinterpret_cast<void*>(first), last - first, MADV_NOHUGEPAGE);
  if (::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    zero(first, last);
  }
}

}  // namespace atl::model
