#include "atoll/model/page_tensor.h"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/descriptor.h"
#include "atoll/base/out_of_memory.h"
#include "atoll/base/progress.h"
#include "atoll/base/spare_pages.h"
#include "atoll/model/pooled_tensors.h"

namespace atl::model {
namespace {

struct Bytes {  // [begin, end).
  uintptr_t begin;
  uintptr_t end;

  size_t size() const { return end - begin; }
  auto* data() const { return reinterpret_cast<std::byte*>(begin); }
};

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

/// Of these bytes, the pages that lie in them wholly.
Bytes whole_pages(Bytes bytes) {
  const uintptr_t page = page_size();
  const uintptr_t first = std::min(bytes.end, (bytes.begin + page - 1) / page * page);
  return {first, std::max(first, bytes.end / page * page)};
}

Bytes bytes_of(const at::Tensor& values) {
  const auto begin = reinterpret_cast<uintptr_t>(values.const_data_ptr());
  return {begin, begin + values.nbytes()};
}

/// Nothing was written to these pages since they were mapped or forgotten; false, too, where the
/// system does not say.
bool are_untouched(Bytes pages) {
  const Descriptor map("/proc/self/pagemap", O_RDONLY);
  constexpr uint64_t kIsPresentOrSwapped = uint64_t{3} << 62;
  std::vector<uint64_t> entries(pages.size() / page_size());
  const auto size = static_cast<ssize_t>(entries.size() * sizeof(uint64_t));
  const auto offset = static_cast<off_t>(pages.begin / page_size() * sizeof(uint64_t));
  if (::pread(map.get(), entries.data(), static_cast<size_t>(size), offset) != size) return false;
  return std::ranges::none_of(entries,
                              [](uint64_t entry) { return (entry & kIsPresentOrSwapped) != 0; });
}

/// That are_untouched() can be true.
bool says_what_is_touched() {
  const at::Tensor one_page = page_zeros(static_cast<int64_t>(page_size()), at::kByte);
  return are_untouched(bytes_of(one_page));
}

/// What a tensor of page_zeros() lies in, and what of it the pool of large tensors was asked for.
class Pages {
 public:
  Pages(void* begin, size_t size) : begin_(begin), size_(size) {}
  ~Pages() {
    take_back({0, UINTPTR_MAX});
    ::munmap(begin_, size_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  /// Null of other tensors.
  static Pages* of(const at::Tensor& values) {
    return values.storage().data_ptr().cast_context<Pages>(&unmap);
  }
  static void unmap(void* pages) { delete static_cast<Pages*>(pages); }

  /// How many bytes from the beginning on hold anything now; the others are what they were. The
  /// pool is asked once, and not for pages that are written already.
  size_t lend(Bytes pages) {
    if (pages.size() == 0) return 0;
    const auto next = asked_.lower_bound(pages.begin);
    if (next != asked_.end() && next->first < pages.end) return 0;
    if (next != asked_.begin() && std::prev(next)->second.end > pages.begin) return 0;
    const bool is_lent = are_untouched(pages);
    const size_t filled = is_lent ? tensor_pool().lend(pages.data(), pages.size()) : 0;
    asked_[pages.begin] = {pages.end, is_lent};
    return filled;
  }
  /// What was lent of these pages, for which it may be asked again.
  void take_back(Bytes pages) {
    auto it = asked_.lower_bound(pages.begin);
    if (it != asked_.begin() && std::prev(it)->second.end > pages.begin) --it;
    while (it != asked_.end() && it->first < pages.end) {
      const auto [begin, asked] = *it;
      const Bytes back{std::max(begin, pages.begin), std::min(asked.end, pages.end)};
      if (asked.is_lent) tensor_pool().take_back(back.data(), back.size());
      it = asked_.erase(it);
      if (begin < back.begin) asked_[begin] = {back.begin, asked.is_lent};
      if (back.end < asked.end) asked_[back.end] = asked;
    }
  }

 private:
  struct Asked {
    uintptr_t end;
    bool is_lent;
  };

  void* begin_;
  size_t size_;
  std::map<uintptr_t, Asked> asked_;  // By their beginnings.
};

}  // namespace

at::Tensor page_zeros(int64_t size, at::ScalarType type) {
  const size_t bytes =
      std::max<size_t>(1, static_cast<size_t>(size) * c10::elementSize(type));  // No map is empty.
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfMemory(fmt::format("there is no memory for {} of parameters, gradients or moments",
                                  format_bytes(bytes)));
  }
  auto pages = std::make_unique<Pages>(memory, bytes);
  return at::for_blob(memory, {size})
      .context(pages.release(), &Pages::unmap)
      .options(at::TensorOptions().dtype(type))
      .make_tensor();
}

void forget(const at::Tensor& values) {
  ATOLL_CHECK(values.is_cpu() && values.is_contiguous());
  if (values.numel() == 0) return;
  const Bytes all = bytes_of(values);
  const Bytes pages = whole_pages(all);
  const auto zero = [](uintptr_t from, uintptr_t to) {
    std::memset(reinterpret_cast<void*>(from), 0, to - from);
  };
  zero(all.begin, pages.begin);
  zero(pages.end, all.end);
  if (pages.size() == 0) return;
  if (Pages* const own = Pages::of(values)) own->take_back(pages);
  // The kernel would join what is left to a huge page, and fill it up again.
  ::madvise(pages.data(), pages.size(), MADV_NOHUGEPAGE);
  if (::madvise(pages.data(), pages.size(), MADV_DONTNEED) != 0) zero(pages.begin, pages.end);
}

bool is_worth_forgetting(const at::Tensor& values) {
  static const bool moves = SparePages::is_supported() && says_what_is_touched();
  const size_t bytes = values.storage().nbytes();
  return moves && bytes >= kLeastWorth && bytes <= kMostWorth && Pages::of(values) != nullptr;
}

void clear(const at::Tensor& values) {
  if (is_worth_forgetting(values)) {
    forget(values);
  } else {
    values.zero_();
  }
}

void make_room_for(const at::Tensor& values) {
  Pages* const own = Pages::of(values);
  if (own == nullptr) return;
  const Bytes pages = whole_pages(bytes_of(values));
  constexpr int64_t kAtLeast = 1 << 20;  // To be worth a thread.
  const auto size = static_cast<int64_t>(own->lend(pages));
  at::parallel_for(0, size, kAtLeast, [&](int64_t begin, int64_t end) {
    std::memset(pages.data() + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace atl::model
