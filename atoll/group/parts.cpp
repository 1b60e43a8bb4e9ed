#include "atoll/group/parts.h"

#include <algorithm>
#include <cmath>

namespace atl::group {
namespace {

constexpr int64_t kCacheLine = 16;  // Of FP32 values.

int64_t in_cache_lines(double size) {
  return static_cast<int64_t>(std::ceil(size / kCacheLine)) * kCacheLine;
}

}  // namespace

Parts::Parts(int64_t size, int64_t num_processes, double leaders_share)
    : size_(size),
      num_processes_(num_processes),
      leaders_(num_processes == 1
                   ? size
                   : std::min(size, in_cache_lines(static_cast<double>(size) * leaders_share))),
      each_(num_processes == 1 ? 0
                               : in_cache_lines(static_cast<double>(size - leaders_) /
                                                static_cast<double>(num_processes - 1))) {}

Span Parts::of(int64_t rank) const {
  if (rank == 0) return {0, leaders_};
  const int64_t begin = std::min(size_, leaders_ + (rank - 1) * each_);
  return {begin, std::min(size_, begin + each_)};
}

std::vector<std::pair<int64_t, Span>> Parts::owners(Span span) const {
  std::vector<std::pair<int64_t, Span>> owners;
  for (int64_t rank = 0; rank < num_processes_; ++rank) {
    const Span own = of(rank);
    const Span both{std::max(own.first, span.first), std::min(own.second, span.second)};
    if (both.first < both.second) owners.emplace_back(rank, both);
  }
  return owners;
}

Parts equal_parts(int64_t size, int64_t num_processes) {
  return {size, num_processes, 1 / static_cast<double>(num_processes)};
}

std::vector<Span> without(Span span, Span hole) {
  std::vector<Span> rest;
  const Span before{span.first, std::min(span.second, hole.first)};
  const Span behind{std::max(span.first, hole.second), span.second};
  if (before.first < before.second) rest.push_back(before);
  if (behind.first < behind.second) rest.push_back(behind);
  return rest;
}

}  // namespace atl::group
