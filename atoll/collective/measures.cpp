#include "atoll/collective/measures.h"

#include <algorithm>
#include <array>

#include "atoll/base/check.h"
#include "atoll/base/clones.h"
#include "atoll/base/random.h"

namespace atl::collective {
namespace {

/// Summed at once, so that sums do not wait for each other.
constexpr size_t kLanes = 32;
constexpr uint64_t kStream = 31;

/// `count` is a multiple of kLanes.
ATOLL_CLONES double dot_lanes(const float* a, const float* b, size_t count) {
  std::array<double, kLanes> sums{};
  for (size_t begin = 0; begin < count; begin += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double left = a[begin + lane];
      const double right = b[begin + lane];
      sums[lane] += left * right;
    }
  }
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

}  // namespace

double dot(std::span<const float> a, std::span<const float> b) {
  ATOLL_CHECK(a.size() == b.size());
  const size_t whole = a.size() / kLanes * kLanes;
  double sum = dot_lanes(a.data(), b.data(), whole);
  for (size_t i = whole; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

Sampling::Sampling(int64_t round, size_t count)
    : round_(static_cast<uint64_t>(round)),
      stride_(std::max<size_t>(1, (count + kEnough - 1) / kEnough)) {}

void Sampling::take(size_t begin, std::span<const float> segment, std::vector<float>& out) const {
  if (stride_ == 1) {
    out.insert(out.end(), segment.begin(), segment.end());
    return;
  }
  const size_t group = stride_ * kBlock;
  for (size_t at = 0; at < segment.size(); at += group) {
    const size_t first = at + random_bits(round_, kStream, begin + at) % stride_ * kBlock;
    const size_t last = std::min(first + kBlock, segment.size());
    if (first < last) out.insert(out.end(), &segment[first], segment.data() + last);
  }
}

void SegmentMeasures::add(size_t rank, std::span<const float> values, size_t begin,
                          const Sampling& sampling) {
  squares_[rank] = sum_of_squares(values);
  if (!tells_products_) return;
  ranks_.push_back(rank);
  sampling.take(begin, values, samples_);
}

void SegmentMeasures::end() {
  if (ranks_.empty()) return;
  const size_t size = samples_.size() / ranks_.size();
  const auto sample = [&](size_t i) { return std::span(samples_).subspan(i * size, size); };
  products_.resize(squares_.size() * (squares_.size() + 1) / 2);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) {  // Ranks rise.
      products_[ranks_[i] * (ranks_[i] + 1) / 2 + ranks_[j]] = dot(sample(i), sample(j));
    }
  }
  samples_ = {};
}

void SegmentMeasures::add_to(std::span<double> squares, std::span<double> products) const {
  for (size_t rank = 0; rank < squares_.size(); ++rank) squares[rank] += squares_[rank];
  for (size_t i = 0; i < products_.size(); ++i) products[i] += products_[i];
}

}  // namespace atl::collective
