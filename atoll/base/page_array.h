#pragma once
// An array that is not initialised. A large one comes straight from the kernel, in huge pages where
// there are any: touching it the first time costs a fraction of what small pages do.
#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace atl {

/// Of a large one memory is taken where it is touched, not before. Throws std::bad_alloc.
template <typename T>
  requires std::is_trivial_v<T>
class PageArray {
 public:
  PageArray() = default;
  explicit PageArray(size_t size) : size_(size) {
    if (!is_large()) {
      data_ = static_cast<T*>(::operator new(num_bytes()));
      return;
    }
    void* const memory = ::mmap(nullptr, num_bytes(), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    ::madvise(memory, num_bytes(), MADV_HUGEPAGE);  // Small pages are as good, only slower.
    data_ = static_cast<T*>(memory);
  }
  ~PageArray() {
    if (data_ == nullptr) return;
    if (is_large()) {
      ::munmap(data_, num_bytes());
    } else {
      ::operator delete(data_);
    }
  }
  PageArray(PageArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageArray& operator=(PageArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<T> span() const { return {data_, size_}; }

 private:
  static constexpr size_t kLargeBytes = size_t{4} << 20;  // Of which some huge pages are whole.

  size_t num_bytes() const { return size_ * sizeof(T); }
  bool is_large() const { return num_bytes() >= kLargeBytes; }

  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace atl
