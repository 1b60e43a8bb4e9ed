#pragma once
// What the owner of a share tells of contributions: how large each is, and which way each points
// beside the others. The coordinator adds up what all owners tell and judges by it
// (coordinator/outliers.h).
//
//   square(i)     = sum of x_i^2        over all values
//   product(i, j) = sum of x_i * x_j    over a sample of them
//
// Products of all pairs say how each contribution lies to the mean of any others, whatever their
// sizes are, without a second look at what was summed and is gone. So of each contribution a sample
// waits until the segment has all: blocks of values, one drawn from each `stride` of them, other
// ones in each round. There are about a quarter of a million values in it: two independent
// contributions have a cosine of 2e-3 there.
//
// Pure; not thread-safe.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace atl::collective {

/// Products of finite values, added up; the same double wherever it is made.
double dot(std::span<const float> a, std::span<const float> b);
double sum_of_squares(std::span<const float> values);

/// Which values of a round are in the sample.
class Sampling {
 public:
  static constexpr size_t kBlock = 16;                // Values side by side.
  static constexpr size_t kEnough = size_t{1} << 18;  // Values; of so many all are in it.

  Sampling() = default;
  Sampling(int64_t round, size_t count);

  /// Of a segment of so many values at most.
  size_t most_of(size_t num_values) const;
  /// Copies those of a segment, which begins at the value `begin` of the round, and says how many.
  size_t take(size_t begin, std::span<const float> segment, std::span<float> out) const;

 private:
  uint64_t round_ = 0;
  size_t stride_ = 1;  // Blocks, of which one is in it.
};

/// Of one segment, by rank.
class SegmentMeasures {
 public:
  SegmentMeasures() = default;
  /// `room`, for the samples of all members, must outlive this object. Where it is empty there are
  /// no products.
  SegmentMeasures(size_t num_members, std::span<float> room) : squares_(num_members), room_(room) {}

  /// The contribution of that rank as it was decoded. Each once.
  void add(size_t rank, std::span<const float> values, size_t begin, const Sampling& sampling);
  /// All who contribute were added.
  void end();

  /// Adds this segment's to the sums of all: squares by rank, and the products of all pairs (i, j),
  /// j <= i: (0, 0), (1, 0), (1, 1), (2, 0), ...
  void add_to(std::span<double> squares, std::span<double> products) const;

 private:
  std::vector<double> squares_;
  std::span<float> room_;  // Samples, one behind the other.
  size_t sample_size_ = 0;
  std::vector<size_t> ranks_;  // Of the samples.
  std::vector<double> products_;
};

}  // namespace atl::collective
