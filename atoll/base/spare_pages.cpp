#include "atoll/base/spare_pages.h"

#include <sys/mman.h>

#include <utility>

#include "atoll/base/check.h"

namespace atl {

bool SparePages::is_supported() {
  constexpr size_t kSize = 4096;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  void* const from = ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (from == MAP_FAILED) return false;
  void* const to = ::mremap(from, kSize, kSize, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
  if (to != MAP_FAILED) ::munmap(to, kSize);
  ::munmap(from, kSize);
  return to != MAP_FAILED;
}

void SparePages::take_mapped(std::byte* begin, size_t size) {
  const size_t whole = whole_units(size);
  for (size_t at = 0; at < whole; at += kUnit) units_.push_back(begin + at);
  if (whole < size) ::munmap(begin + whole, size - whole);
}

void SparePages::take_pages(std::byte* begin, size_t size) {
  const size_t whole = whole_units(size);
  for (size_t at = 0; at < whole; at += kUnit) {
    void* const unit =
        ::mremap(begin + at, kUnit, kUnit, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
    if (unit == MAP_FAILED) {  // Of several mappings, or the system knows no such move.
      ::madvise(begin + at, kUnit, MADV_DONTNEED);
    } else {
      units_.push_back(static_cast<std::byte*>(unit));
    }
  }
  if (whole < size) ::madvise(begin + whole, size - whole, MADV_DONTNEED);
}

size_t SparePages::fill(std::byte* begin, size_t size) {
  const size_t whole = whole_units(size);
  size_t filled = 0;
  for (; filled < whole && !units_.empty(); filled += kUnit) {
    void* const moved =
        ::mremap(units_.back(), kUnit, kUnit, MREMAP_MAYMOVE | MREMAP_FIXED, begin + filled);
    if (moved == MAP_FAILED) {  // The system may have unmapped what was there.
      ::munmap(give_unit(), kUnit);
      constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
      ATOLL_CHECK(::mmap(begin + filled, kUnit, PROT_READ | PROT_WRITE, kFlags, -1, 0) !=
                  MAP_FAILED);
      break;
    }
    units_.pop_back();
  }
  return filled;
}

std::byte* SparePages::give_unit() {
  std::byte* const unit = units_.back();
  units_.pop_back();
  return unit;
}

std::vector<std::byte*> SparePages::give_all() { return std::exchange(units_, {}); }

void SparePages::unmap(const std::vector<std::byte*>& units) {
  for (std::byte* const unit : units) ::munmap(unit, kUnit);
}

}  // namespace atl
