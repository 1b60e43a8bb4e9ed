#pragma once
// The innermost loops of products in tiles (tile_products.h), for processors with Intel's AMX, or
// with AVX-512 for BF16: factors are packed into panels, and two panels multiplied. Compiled for
// such processors, and called on them alone.
//
// A panel has kPanelLanes rows of the first factor, or columns of the second, and some depth k. For
// each kStepDepth of k it has its parts one after the other, and of each two tiles of 16 lanes.
#include <cstdint>

#include "atoll/base/clones.h"

namespace atl::model {

constexpr int64_t kPanelLanes = 32;
constexpr int64_t kStepDepth = 32;
/// BF16s for one part, one step.
constexpr int64_t kStepSize = kPanelLanes * kStepDepth;

/// An FP32 number is the sum of three BF16s, which have a third of its bits each.
template <typename T>
constexpr int64_t kParts = sizeof(T) == sizeof(float) ? 3 : 1;

enum class Side : uint8_t { kFirst, kSecond };

/// Lane l at depth k is data[l * lane_stride + k * depth_stride], where one of the strides is 1.
/// T is float, or uint16_t for the bits of a BF16.
template <typename T>
struct Factor {
  const T* data;
  int64_t lane_stride;
  int64_t depth_stride;

  ATOLL_INLINE Factor from(int64_t lane, int64_t depth) const {
    return {data + lane * lane_stride + depth * depth_stride, lane_stride, depth_stride};
  }
};

/// What the thread's tile registers are, as long as it lives. Only where there is AMX.
class TilesInUse {
 public:
  TilesInUse();
  ~TilesInUse();
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

/// `panel` has room for all steps, the last one filled up with zeros, at a multiple of 64 bytes.
template <typename T>
void pack_panel(Side side, const Factor<T>& factor, int64_t num_lanes, int64_t depth,
                uint16_t* panel);

/// What is to come nearer while others are multiplied by AMX. Where fewer than kPanelsAhead stay,
/// the rest of the panel that comes by is left to the processor.
struct Ahead {
  const void* panel;   // A part of one: num_steps * kStepSize * kNumParts / kPanelsAhead BF16s.
  const void* out;     // Where the next results go: 32 rows of 128 bytes.
  int64_t out_stride;  // In bytes.
};
constexpr int64_t kPanelsAhead = 8;

/// sums (32, 32), rows `stride` apart = first second, by AMX, while the thread holds a TilesInUse.
/// Six of the nine products of FP32 numbers' parts, that of the first parts last; each of the other
/// three is below 2^-24 of the whole (Henry, Tang and Heinecke 2019, section III).
template <int64_t kNumParts>
void multiply_panels_by_amx(int64_t num_steps, const uint16_t* first, const uint16_t* second,
                            float* sums, int64_t stride, const Ahead& ahead);
/// out (32, 32), rows `stride` apart = or += first second, of one part each, by AVX-512's own
/// products of BF16; num_steps >= 1. Out is float, or uint16_t for the bits of a BF16, which is not
/// added to. What lies behind the two panels comes nearer, which mostly are the next ones.
template <typename Out>
void multiply_panels_by_vectors(int64_t num_steps, const uint16_t* first, const uint16_t* second,
                                Out* out, int64_t stride, bool adds);

/// out (num_rows, num_columns) = or += sums (32, 32).
void put_sums(const float* sums, int64_t num_rows, int64_t num_columns, float* out,
              int64_t out_stride, bool adds);
/// Rounded to the nearest BF16, ties to even.
void put_sums(const float* sums, int64_t num_rows, int64_t num_columns, uint16_t* out,
              int64_t out_stride);

}  // namespace atl::model
