#pragma once
// Which part of P, all parameters, each process of an island owns: those that it updates, and whose
// moments it has. Parts follow each other in the order of the processes. Pure.
#include <cstdint>
#include <utility>
#include <vector>

namespace atl::group {

using Span = std::pair<int64_t, int64_t>;  // [begin, end) of P.

class Parts {
 public:
  /// Of `size` values in all, process 0 owns that share, and the others as much as each other.
  Parts(int64_t size, int64_t num_processes, double leaders_share);

  int64_t size() const { return size_; }
  int64_t num_processes() const { return num_processes_; }
  Span of(int64_t rank) const;
  /// What each process owns of [begin, end), by rank, without those that own nothing of it.
  std::vector<std::pair<int64_t, Span>> owners(Span span) const;

 private:
  int64_t size_;
  int64_t num_processes_;
  int64_t leaders_;  // Process 0's; and the others', but for the last.
  int64_t each_;
};

/// All the same.
Parts equal_parts(int64_t size, int64_t num_processes);
/// What of `span` lies outside `hole`.
std::vector<Span> without(Span span, Span hole);

}  // namespace atl::group
