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

double sum_of(const std::array<double, kLanes>& sums) {
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

/// `count` is a multiple of kLanes, here and below. Half the work of a product of two.
ATOLL_CLONES double square_lanes(const float* values, size_t count) {
  std::array<double, kLanes> sums{};
  for (size_t begin = 0; begin < count; begin += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[begin + lane];
      sums[lane] += value * value;
    }
  }
  return sum_of(sums);
}

ATOLL_CLONES double dot_lanes(const float* a, const float* b, size_t count) {
  std::array<double, kLanes> sums{};
  for (size_t begin = 0; begin < count; begin += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double left = a[begin + lane];
      const double right = b[begin + lane];
      sums[lane] += left * right;
    }
  }
  return sum_of(sums);
}

}  // namespace

double dot(std::span<const float> a, std::span<const float> b) {
  ATOLL_CHECK(a.size() == b.size());
  const size_t whole = a.size() / kLanes * kLanes;
  double sum = dot_lanes(a.data(), b.data(), whole);
  for (size_t i = whole; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

double sum_of_squares(std::span<const float> values) {
  const size_t whole = values.size() / kLanes * kLanes;
  double sum = square_lanes(values.data(), whole);
  for (const float value : values.subspan(whole)) sum += static_cast<double>(value) * value;
  return sum;
}

Sampling::Sampling(int64_t round, size_t count)
    : round_(static_cast<uint64_t>(round)),
      stride_(std::max<size_t>(1, (count + kEnough - 1) / kEnough)) {}

size_t Sampling::most_of(size_t num_values) const {
  const size_t group = stride_ * kBlock;
  return stride_ == 1 ? num_values : (num_values + group - 1) / group * kBlock;
}

size_t Sampling::take(size_t begin, std::span<const float> segment, std::span<float> out) const {
  if (stride_ == 1) {
    std::ranges::copy(segment, out.begin());
    return segment.size();
  }
  const size_t group = stride_ * kBlock;
  size_t count = 0;
  for (size_t at = 0; at < segment.size(); at += group) {
    const size_t first = at + random_bits(round_, kStream, begin + at) % stride_ * kBlock;
    if (first >= segment.size()) continue;
    const size_t size = std::min(kBlock, segment.size() - first);
    std::ranges::copy(segment.subspan(first, size), out.subspan(count).begin());
    count += size;
  }
  return count;
}

void SegmentMeasures::add(size_t rank, std::span<const float> values, size_t begin,
                          const Sampling& sampling) {
  squares_[rank] = sum_of_squares(values);
  if (room_.empty()) return;
  sample_size_ = sampling.take(begin, values, room_.subspan(ranks_.size() * sample_size_));
  ranks_.push_back(rank);
}

void SegmentMeasures::end() {
  const auto sample = [&](size_t i) { return room_.subspan(i * sample_size_, sample_size_); };
  if (!ranks_.empty()) products_.resize(squares_.size() * (squares_.size() + 1) / 2);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (size_t j = 0; j <= i; ++j) {  // Ranks rise.
      products_[ranks_[i] * (ranks_[i] + 1) / 2 + ranks_[j]] = dot(sample(i), sample(j));
    }
  }
}

void SegmentMeasures::add_to(std::span<double> squares, std::span<double> products) const {
  for (size_t rank = 0; rank < squares_.size(); ++rank) squares[rank] += squares_[rank];
  for (size_t i = 0; i < products_.size(); ++i) products[i] += products_[i];
}

}  // namespace atl::collective
