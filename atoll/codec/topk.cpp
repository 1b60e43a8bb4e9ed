#include "atoll/codec/topk.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "atoll/base/check.h"
#include "atoll/codec/float_bits.h"
#include "atoll/codec/positions.h"
#include "atoll/codec/subset_codec.h"

namespace atl::codec {
namespace {

ATOLL_CLONES uint32_t count_from(const float* values, size_t count, uint32_t threshold) {
  uint32_t found = 0;
  for (size_t i = 0; i < count; ++i) found += magnitude_bits(values[i]) >= threshold ? 1 : 0;
  return found;
}

/// Chosen are the values above `threshold`, and those equal to it before the index `end_of_ties`.
struct Choice {
  uint32_t threshold;
  size_t end_of_ties;
};

/// The choice of exactly num_kept of `count` values, num_kept from 1 on. Halves the range of
/// thresholds until one fits: counting is so fast that this beats sorting and histograms.
Choice choose_largest(const float* values, size_t count, size_t num_kept) {
  uint32_t low = 0;               // Magnitudes from here on: num_kept or more of them.
  uint32_t high = kInfinityBits;  // Fewer.
  size_t from_high = 0;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const size_t found = count_from(values, count, middle);
    if (found == num_kept) return {middle, count};
    if (found > num_kept) {
      low = middle;
    } else {
      high = middle;
      from_high = found;
    }
  }
  size_t index = 0;
  for (size_t ties = num_kept - from_high; ties > 0; ++index) {
    ties -= magnitude_bits(values[index]) == low ? 1 : 0;
  }
  return {low, index};
}

/// One bit for each of 64 values: is it chosen?
ATOLL_INLINE uint64_t chosen_bits(const float* values, size_t begin, const Choice& choice) {
  uint8_t flags[64];
  const size_t end_of_ties = choice.end_of_ties;
  const uint32_t threshold = choice.threshold + (begin >= end_of_ties ? 1 : 0);
  for (size_t j = 0; j < 64; ++j) flags[j] = magnitude_bits(values[j]) >= threshold ? 1 : 0;
  if (begin < end_of_ties && end_of_ties < begin + 64) {
    for (size_t j = end_of_ties - begin; j < 64; ++j) {
      flags[j] = magnitude_bits(values[j]) > threshold ? 1 : 0;
    }
  }
  uint64_t bits = 0;
  for (size_t j = 0; j < 64; j += 8) {  // The lowest bits of eight bytes meet in the highest byte.
    const auto eight = load<uint64_t>(reinterpret_cast<const std::byte*>(flags + j));
    bits |= (eight * 0x0102'0408'1020'4080) >> 56 << j;
  }
  return bits;
}

/// Writes the chosen indices, plus `offset`; returns their number.
ATOLL_CLONES size_t list_chosen(const float* values, size_t count, Choice choice, uint32_t offset,
                                uint32_t* positions) {
  size_t found = 0;
  const size_t whole = count / 64 * 64;
  for (size_t begin = 0; begin < whole; begin += 64) {
    uint64_t bits = chosen_bits(values + begin, begin, choice);
    for (; bits != 0; bits &= bits - 1) {
      const auto index =
          static_cast<uint32_t>(begin) + static_cast<uint32_t>(std::countr_zero(bits));
      positions[found++] = offset + index;
    }
  }
  for (size_t i = whole; i < count; ++i) {
    const uint32_t threshold = choice.threshold + (i >= choice.end_of_ties ? 1 : 0);
    if (magnitude_bits(values[i]) >= threshold) {
      positions[found++] = offset + static_cast<uint32_t>(i);
    }
  }
  return found;
}

class TopkCodec final : public SubsetCodec {
 public:
  /// Without chunks: chunk_size 0 and the share.
  TopkCodec(std::string_view stage, double share, size_t kept_of_chunk, size_t chunk_size,
            std::unique_ptr<Codec> inner)
      : SubsetCodec(stage, share, std::move(inner)),
        kept_of_chunk_(kept_of_chunk),
        chunk_size_(chunk_size) {}

 protected:
  uint8_t kind() const override { return chunk_size_ == 0 ? 11 : 12; }
  size_t num_kept(size_t count, uint32_t /*sequence*/) const override { return max_kept(count); }
  size_t max_kept(size_t count) const override {
    if (chunk_size_ == 0) return kept_of(count);
    return count / chunk_size_ * kept_of_chunk_ + kept_of(count % chunk_size_);
  }
  double told_bits_per_value() const override { return position_bits(share()); }
  size_t max_told_bytes(size_t count) const override {
    return max_position_bytes(count, max_kept(count));
  }

  size_t choose(std::span<const float> values, uint32_t /*sequence*/, std::span<uint32_t> positions,
                std::span<std::byte> told) const override {
    const size_t chunk_size = chunk_size_ == 0 ? values.size() : chunk_size_;
    size_t found = 0;
    for (size_t begin = 0; begin < values.size(); begin += chunk_size) {
      const size_t size = std::min(chunk_size, values.size() - begin);
      const float* const chunk = values.data() + begin;
      const Choice choice = choose_largest(chunk, size, kept_of(size));
      found +=
          list_chosen(chunk, size, choice, static_cast<uint32_t>(begin), positions.data() + found);
    }
    ATOLL_CHECK(found == positions.size());
    return write_positions(positions, values.size(), told);
  }
  size_t read(std::span<const std::byte> body, size_t count, uint32_t /*sequence*/,
              std::span<uint32_t> positions) const override {
    return read_positions(body, count, positions);
  }

 private:
  /// Of one chunk of `size` values, at most chunk_size_ where there are chunks.
  size_t kept_of(size_t size) const {
    if (chunk_size_ != 0) return (kept_of_chunk_ * size + chunk_size_ - 1) / chunk_size_;
    const auto rounded = static_cast<size_t>(std::llround(share() * static_cast<double>(size)));
    return std::clamp<size_t>(rounded, size == 0 ? 0 : 1, size);
  }
  size_t kept_of_chunk_;
  size_t chunk_size_;
};

}  // namespace

std::unique_ptr<Codec> make_topk_codec(std::string_view stage, double share,
                                       std::unique_ptr<Codec> inner) {
  return std::make_unique<TopkCodec>(stage, share, 0, 0, std::move(inner));
}

std::unique_ptr<Codec> make_chunk_topk_codec(std::string_view stage, size_t num_kept,
                                             size_t chunk_size, std::unique_ptr<Codec> inner) {
  const double share = static_cast<double>(num_kept) / static_cast<double>(chunk_size);
  return std::make_unique<TopkCodec>(stage, share, num_kept, chunk_size, std::move(inner));
}

}  // namespace atl::codec
