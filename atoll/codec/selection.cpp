#include "atoll/codec/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "atoll/base/check.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

ATOLL_CLONES uint32_t count_from(const float* values, size_t count, uint32_t threshold) {
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) found += magnitude_bits(values[i]) >= threshold ? 1 : 0;
  return found;
}

/// Of eight flags, bytes of 0 or 1, the first in the lowest bit.
ATOLL_INLINE uint64_t pack_flags(const uint8_t* flags) {
  const auto eight = load<uint64_t>(reinterpret_cast<const std::byte*>(flags));
  return (eight * 0x0102'0408'1020'4080) >> 56;  // Their lowest bits meet in the highest byte.
}

/// One bit for each of 64 values: has it a magnitude from `low` on, `width` of them?
ATOLL_INLINE uint64_t bits_within(const float* values, uint32_t low, uint32_t width) {
  uint8_t flags[64];
  for (size_t j = 0; j < 64; ++j) flags[j] = magnitude_bits(values[j]) - low < width ? 1 : 0;
  uint64_t bits = 0;
  for (size_t j = 0; j < 64; j += 8) bits |= pack_flags(flags + j) << j;
  return bits;
}

/// Calls found(index) for each value with a magnitude from `low` on, `width` of them.
template <typename Found>
ATOLL_INLINE void for_each_within(const float* values, size_t count, uint32_t low, uint32_t width,
                                  const Found& found) {
  const size_t whole = count / 64 * 64;
  for (size_t begin = 0; begin < whole; begin += 64) {
    uint64_t bits = bits_within(values + begin, low, width);
    for (; bits != 0; bits &= bits - 1) {
      found(begin + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
  for (size_t i = whole; i < count; ++i) {
    if (magnitude_bits(values[i]) - low < width) found(i);
  }
}

ATOLL_CLONES size_t copy_within(const float* values, size_t count, uint32_t low, uint32_t width,
                                float* copies) {
  size_t found = 0;
  for_each_within(values, count, low, width, [&](size_t i) { copies[found++] = values[i]; });
  return found;
}

ATOLL_CLONES size_t list_within(const float* values, size_t count, uint32_t low, uint32_t width,
                                uint32_t offset, uint32_t* positions) {
  size_t found = 0;
  for_each_within(values, count, low, width,
                  [&](size_t i) { positions[found++] = offset + static_cast<uint32_t>(i); });
  return found;
}

/// Where the smallest magnitude kept must lie: from `low` on there are from_low values, enough;
/// from `high` on from_high, too few.
struct Bracket {
  uint32_t low = 0;
  uint32_t high = kInfinityBits;
  size_t from_low;
  size_t from_high = 0;

  explicit Bracket(size_t count) : from_low(count) {}
  bool contains(uint32_t threshold) const { return low < threshold && threshold < high; }
  void narrow(uint32_t threshold, size_t found, size_t num_kept) {
    if (found >= num_kept) {
      low = threshold;
      from_low = found;
    } else {
      high = threshold;
      from_high = found;
    }
  }
};

/// The magnitude of the num_kept-th largest, or of one between it and the next.
Bracket find_threshold(std::span<const float> values, size_t num_kept);

/// Magnitudes between which the threshold probably lies: those of a sample's values whose ranks are
/// off by four standard deviations of a random sample's.
std::pair<uint32_t, uint32_t> guess_threshold(std::span<const float> values, size_t num_kept) {
  constexpr size_t kSample = 1024;
  float sample[kSample];
  const size_t stride = values.size() / kSample;
  for (size_t i = 0; i < kSample; ++i) sample[i] = values[i * stride];
  const double share = static_cast<double>(num_kept) / static_cast<double>(values.size());
  const double rank = share * kSample;
  const double slack = 4 * std::sqrt(rank * (1 - share)) + 1;
  const auto threshold_of = [&](double wanted) {
    return find_threshold(sample, static_cast<size_t>(std::clamp<double>(wanted, 1, kSample))).low;
  };
  return {threshold_of(rank + slack), threshold_of(rank - slack)};
}

Bracket find_threshold(std::span<const float> values, size_t num_kept) {
  constexpr size_t kFew = size_t{1} << 14;  // A guess would cost more than it saves.
  Bracket bracket(values.size());
  const auto try_threshold = [&](uint32_t threshold) {
    if (!bracket.contains(threshold)) return;
    bracket.narrow(threshold, count_from(values.data(), values.size(), threshold), num_kept);
  };
  if (values.size() > kFew) {
    const auto [low, high] = guess_threshold(values, num_kept);
    try_threshold(low);
    try_threshold(high);
  }
  // Counting is so fast that halving the bracket is quicker than a histogram. Once few values are
  // inside, only those are counted.
  thread_local std::vector<float> inside;
  bool is_copied = false;
  std::span<const float> candidates = values;
  size_t above = 0;  // Those that are no candidates and larger than all.
  while (bracket.from_low != num_kept && bracket.high - bracket.low > 1) {
    const size_t num_inside = bracket.from_low - bracket.from_high;
    if (!is_copied && values.size() > kFew && num_inside < values.size() / 8) {
      inside.resize(num_inside);
      above = bracket.from_high;
      copy_within(values.data(), values.size(), bracket.low, bracket.high - bracket.low,
                  inside.data());
      candidates = inside;
      is_copied = true;
    }
    const uint32_t middle = bracket.low + (bracket.high - bracket.low) / 2;
    const size_t found = above + count_from(candidates.data(), candidates.size(), middle);
    bracket.narrow(middle, found, num_kept);
  }
  return bracket;
}

}  // namespace

void list_largest(std::span<const float> values, size_t num_kept, uint32_t offset,
                  uint32_t* positions) {
  const Bracket bracket = find_threshold(values, num_kept);
  const uint32_t low = bracket.low;
  size_t end_of_ties = values.size();  // Before here what equals `low` is kept.
  if (bracket.from_low > num_kept) {
    end_of_ties = 0;
    for (size_t ties = num_kept - bracket.from_high; ties > 0; ++end_of_ties) {
      ties -= magnitude_bits(values[end_of_ties]) == low ? 1 : 0;
    }
  }
  const size_t found =
      list_within(values.data(), end_of_ties, low, kInfinityBits - low, offset, positions);
  const size_t rest = list_within(values.data() + end_of_ties, values.size() - end_of_ties, low + 1,
                                  kInfinityBits - low - 1,
                                  offset + static_cast<uint32_t>(end_of_ties), positions + found);
  ATOLL_CHECK(found + rest == num_kept);
}

}  // namespace atl::codec
