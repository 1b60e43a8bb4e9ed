#pragma once
// Pages that are moved from where nobody needs them to where somebody does, by mremap(). One from
// the system costs a fault and is cleared: 500 MB take 350 ms on a virtual machine, in moves 20.
#include <cstddef>
#include <vector>

namespace atl {

/// Not safe for several threads at once.
class SparePages {
 public:
  /// They are moved by so many bytes: pieces of any size would become smaller with each move.
  static constexpr size_t kUnit = size_t{512} << 10;

  SparePages() = default;
  ~SparePages() { unmap(give_all()); }
  SparePages(const SparePages&) = delete;
  SparePages& operator=(const SparePages&) = delete;

  /// False where the system knows no such moves (Linux before 5.7).
  static bool is_supported();

  /// Whole units from `begin` on, which is the beginning of a page.
  static size_t whole_units(size_t size) { return size / kUnit * kUnit; }

  /// What is mapped there is nobody else's any more. What is no whole unit is unmapped.
  void take_mapped(std::byte* begin, size_t size);
  /// What is mapped there is zero afterwards and takes no memory, but stays mapped.
  void take_pages(std::byte* begin, size_t size);
  /// Moves units to what is mapped there, instead of its pages, whose contents are lost. For how
  /// many bytes from `begin` on there were some: they hold anything.
  size_t fill(std::byte* begin, size_t size);

  size_t size() const { return units_.size() * kUnit; }
  /// Mapped, each of kUnit, and the caller's.
  std::vector<std::byte*> give_all();
  /// One of them; there must be some.
  std::byte* give_unit();
  static void unmap(const std::vector<std::byte*>& units);

 private:
  std::vector<std::byte*> units_;
};

}  // namespace atl
