// Compiled for x86-64-v4 with BF16 and AMX (CMakeLists.txt), and called on processors that have
// what is called. No inline function of the standard library is used here, as in turn_square.h.
#include "atoll/model/tile_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define ATOLL_LANES 16
#include "atoll/model/turn_square.h"

namespace atl::model {
namespace {

constexpr int64_t kTileLanes = 16;
constexpr int64_t kTileSize = kTileLanes * kStepDepth;
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kLine = 64;  // Of a cache, in bytes.

/// 32 numbers on their way into a row of a tile: 16 pairs of BF16s.
template <typename T>
struct Row;
template <>
struct Row<float> {
  __m512i low;   // The first half of a lane's depth, or all lanes at even depth.
  __m512i high;  // The other one.
};
template <>
struct Row<uint16_t> {
  __m512i pairs;
};

__mmask16 mask(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1U << count) - 1);
}

/// A lane's 32 of depth.
Row<float> load_lane(const float* from, int64_t count) {
  return {_mm512_maskz_loadu_epi32(mask(count), from),
          _mm512_maskz_loadu_epi32(mask(count - 16), from + 16)};
}
Row<uint16_t> load_lane(const uint16_t* from, int64_t count) {
  const __mmask32 is_there = count >= 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
  return {_mm512_maskz_loadu_epi16(is_there, from)};
}

/// All lanes at two depths that follow on each other.
Row<float> load_pair(const float* even, const float* odd, __mmask16 lanes, __mmask16 odd_lanes) {
  return {_mm512_maskz_loadu_epi32(lanes, even), _mm512_maskz_loadu_epi32(odd_lanes, odd)};
}
Row<uint16_t> load_pair(const uint16_t* even, const uint16_t* odd, __mmask16 lanes,
                        __mmask16 odd_lanes) {
  const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, even));
  const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(odd_lanes, odd));
  return {_mm512_or_si512(low, _mm512_slli_epi32(high, 16))};
}

/// The upper halves of words, as BF16s side by side: of a lane's depth in its order, or of even and
/// odd depth in turns.
template <bool kIsLane>
__m512i in_pairs(const Row<float>& row) {
  if constexpr (kIsLane) {
    const __m512i odd_words =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(row.low, odd_words, row.high);
  } else {
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(row.low, 16), row.high);
  }
}

/// The nearest BF16, ties away from zero, and what it leaves of the value.
__m512i split(__m512i& value) {
  const __m512i rounded = _mm512_and_si512(_mm512_add_epi32(value, _mm512_set1_epi32(0x8000)),
                                           _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  value =
      _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(value), _mm512_castsi512_ps(rounded)));
  return rounded;
}
Row<float> split(Row<float>& row) { return {split(row.low), split(row.high)}; }

/// Into the tiles of all parts, kStepSize apart.
template <bool kIsLane>
void store_row(Row<float> row, uint16_t* to) {
#pragma GCC unroll 2
  for (int64_t part = 0; part + 1 < kParts<float>; ++part) {
    _mm512_store_si512(to + part * kStepSize, in_pairs<kIsLane>(split(row)));
  }
  // What is left has no more bits than the last part takes.
  _mm512_store_si512(to + (kParts<float> - 1) * kStepSize, in_pairs<kIsLane>(row));
}
template <bool kIsLane>
void store_row(const Row<uint16_t>& row, uint16_t* to) {
  _mm512_store_si512(to, row.pairs);
}

void turn(uint16_t* tile) {
  Words square[kTileLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTileLanes; ++i) {
    square[i] = reinterpret_cast<Words>(_mm512_load_si512(tile + i * kStepDepth));
  }
  turn_square<kLanes / 2>(square);
#pragma GCC unroll 16
  for (int64_t i = 0; i < kTileLanes; ++i) {
    _mm512_store_si512(tile + i * kStepDepth, reinterpret_cast<__m512i>(square[i]));
  }
}

/// For the next panel, which mostly the same thread packs next: its lines lie far apart, so that
/// the processor does not guess them. Of 16 lanes one is enough.
template <typename T>
void bring_next_nearer(const T* lanes) {
  _mm_prefetch(reinterpret_cast<const char*>(lanes + kPanelLanes), _MM_HINT_T1);
}

/// 16 lanes, 32 of depth. There may be less of them, or none.
template <typename T>
void pack_tiles(Side side, const Factor<T>& factor, int64_t num_lanes, int64_t depth,
                uint16_t* to) {
  const bool has_lanes = factor.depth_stride == 1;
  if (has_lanes) {
    for (int64_t i = 0; i < kTileLanes; ++i) {
      const T* const lane = factor.data + i * factor.lane_stride;
      store_row<true>(load_lane(lane, i < num_lanes ? depth : 0), to + i * kStepDepth);
    }
  } else {
    for (int64_t i = 0; i < kTileLanes; ++i) {
      const T* const even = factor.data + 2 * i * factor.depth_stride;
      const __mmask16 lanes = mask(2 * i < depth ? num_lanes : 0);
      const __mmask16 odd_lanes = mask(2 * i + 1 < depth ? num_lanes : 0);
      store_row<false>(load_pair(even, even + factor.depth_stride, lanes, odd_lanes),
                       to + i * kStepDepth);
      bring_next_nearer(even);
      bring_next_nearer(even + factor.depth_stride);
    }
  }
  if (has_lanes != (side == Side::kFirst)) {
    for (int64_t part = 0; part < kParts<T>; ++part) turn(to + part * kStepSize);
  }
}

struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t num_rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// GCC thinks that only its first bytes are read, so it is no local variable.
constexpr TileShapes kTileShapes;

}  // namespace

TilesInUse::TilesInUse() { _tile_loadconfig(&kTileShapes); }
TilesInUse::~TilesInUse() { _tile_release(); }

template <typename T>
void pack_panel(Side side, const Factor<T>& factor, int64_t num_lanes, int64_t depth,
                uint16_t* panel) {
  for (int64_t k = 0; k < depth; k += kStepDepth) {
    for (int64_t lane = 0; lane < kPanelLanes; lane += kTileLanes) {
      pack_tiles(side, factor.from(lane, k), num_lanes - lane, depth - k,
                 panel + lane * kStepDepth);
    }
    panel += kParts<T> * kStepSize;
  }
}
template void pack_panel(Side side, const Factor<float>& factor, int64_t num_lanes, int64_t depth,
                         uint16_t* panel);
template void pack_panel(Side side, const Factor<uint16_t>& factor, int64_t num_lanes,
                         int64_t depth, uint16_t* panel);

// Tile registers have numbers: 0 to 3 are sums, 4 and 5 rows, 6 and 7 columns.
#define ATOLL_LOAD_ROWS(part)                                \
  _tile_loadd(4, first + (part) * kStepSize, kTileRowBytes); \
  _tile_loadd(5, first + (part) * kStepSize + kTileSize, kTileRowBytes)
#define ATOLL_LOAD_COLUMNS(part)                              \
  _tile_loadd(6, second + (part) * kStepSize, kTileRowBytes); \
  _tile_loadd(7, second + (part) * kStepSize + kTileSize, kTileRowBytes)
#define ATOLL_MULTIPLY     \
  _tile_dpbf16ps(0, 4, 6); \
  _tile_dpbf16ps(1, 4, 7); \
  _tile_dpbf16ps(2, 5, 6); \
  _tile_dpbf16ps(3, 5, 7)

template <int64_t kNumParts>
void multiply_panels_by_amx(int64_t num_steps, const uint16_t* first, const uint16_t* second,
                            float* sums, int64_t stride, const Ahead& ahead) {
  constexpr int64_t kStepLines = kNumParts * kStepSize / kPanelsAhead * 2 / kLine;
  const char* panel = static_cast<const char*>(ahead.panel);
  const char* out = static_cast<const char*>(ahead.out);
  asm volatile("" ::: "memory");  // GCC does not know that tiles read what was packed.
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < num_steps; ++step) {
#pragma GCC unroll 12
    for (int64_t line = 0; line < kStepLines; ++line) {
      _mm_prefetch(panel + line * kLine, _MM_HINT_T1);
    }
    panel += kStepLines * kLine;
    if (step < kPanelLanes / 2) {
#pragma GCC unroll 2
      for (int row = 0; row < 2; ++row) {
        __builtin_prefetch(out, 1);
        __builtin_prefetch(out + kLine, 1);
        out += ahead.out_stride;
      }
    }
    if constexpr (kNumParts == 1) {
      ATOLL_LOAD_ROWS(0);
      ATOLL_LOAD_COLUMNS(0);
      ATOLL_MULTIPLY;
    } else {  // In an order that changes one of the two at a time.
      ATOLL_LOAD_ROWS(2);
      ATOLL_LOAD_COLUMNS(0);
      ATOLL_MULTIPLY;
      ATOLL_LOAD_ROWS(1);
      ATOLL_MULTIPLY;
      ATOLL_LOAD_COLUMNS(1);
      ATOLL_MULTIPLY;
      ATOLL_LOAD_ROWS(0);
      ATOLL_MULTIPLY;
      ATOLL_LOAD_COLUMNS(2);
      ATOLL_MULTIPLY;
      ATOLL_LOAD_COLUMNS(0);
      ATOLL_MULTIPLY;
    }
    first += kNumParts * kStepSize;
    second += kNumParts * kStepSize;
  }
  const auto bytes = static_cast<size_t>(stride) * sizeof(float);
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + kTileLanes, bytes);
  _tile_stored(2, sums + kTileLanes * stride, bytes);
  _tile_stored(3, sums + kTileLanes * stride + kTileLanes, bytes);
}
template void multiply_panels_by_amx<1>(int64_t num_steps, const uint16_t* first,
                                        const uint16_t* second, float* sums, int64_t stride,
                                        const Ahead& ahead);
template void multiply_panels_by_amx<3>(int64_t num_steps, const uint16_t* first,
                                        const uint16_t* second, float* sums, int64_t stride,
                                        const Ahead& ahead);

namespace {
// Steps of which the columns, 16 KiB, stay in the nearest cache while all rows pass.
constexpr int64_t kNearSteps = 8;
// With two vectors each they are as many sums as hide their latency.
constexpr int64_t kRowsAtOnce = 8;

__m512bh pairs_at(const uint16_t* from) {
  return reinterpret_cast<__m512bh>(_mm512_load_si512(from));
}

/// Sixteen times the pair.
__m512bh pair_at(const uint16_t* from) {
  int pair = 0;
  __builtin_memcpy(&pair, from, sizeof(pair));
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

void put(float* to, __m512 values, bool adds) {
  _mm512_storeu_ps(to, adds ? _mm512_add_ps(_mm512_loadu_ps(to), values) : values);
}
void put(uint16_t* to, __m512 values, bool /*adds*/) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
}

/// out (8, 32), rows `stride` apart = or += sums + rows columns, where `sums` (8, 32) may be null
/// for zeros. The first row is the panel's `row`. It brings nearer where results go, and what is
/// multiplied kNearSteps later: those rows, and as many lines of the columns.
template <typename Out>
void multiply_eight_rows(int64_t num_steps, const uint16_t* rows, const uint16_t* columns,
                         int64_t row, const float* sums, Out* out, int64_t stride, bool adds) {
  __m512 low[kRowsAtOnce];
  __m512 high[kRowsAtOnce];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRowsAtOnce; ++i) {
    low[i] = high[i] = _mm512_setzero_ps();
    if (sums != nullptr) {
      low[i] = _mm512_load_ps(sums + i * kPanelLanes);
      high[i] = _mm512_load_ps(sums + i * kPanelLanes + kTileLanes);
    }
    __builtin_prefetch(out + i * stride, 1);
    __builtin_prefetch(out + i * stride + kPanelLanes - 1, 1);
  }
  for (int64_t step = 0; step < num_steps; ++step) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kRowsAtOnce; ++i) {
      const int64_t later = kNearSteps * kStepSize + i * kStepDepth;
      _mm_prefetch(reinterpret_cast<const char*>(rows + later), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(columns + later + row * kStepDepth), _MM_HINT_T0);
    }
    for (int64_t pair = 0; pair < kStepDepth / 2; ++pair) {
      const __m512bh left = pairs_at(columns + pair * kStepDepth);
      const __m512bh right = pairs_at(columns + kTileSize + pair * kStepDepth);
#pragma GCC unroll 8
      for (int64_t i = 0; i < kRowsAtOnce; ++i) {
        const __m512bh of_row = pair_at(rows + i * kStepDepth + 2 * pair);
        low[i] = _mm512_dpbf16_ps(low[i], of_row, left);
        high[i] = _mm512_dpbf16_ps(high[i], of_row, right);
      }
    }
    rows += kStepSize;
    columns += kStepSize;
  }
#pragma GCC unroll 8
  for (int64_t i = 0; i < kRowsAtOnce; ++i) {
    put(out + i * stride, low[i], adds);
    put(out + i * stride + kTileLanes, high[i], adds);
  }
}
}  // namespace

template <typename Out>
void multiply_panels_by_vectors(int64_t num_steps, const uint16_t* first, const uint16_t* second,
                                Out* out, int64_t stride, bool adds) {
  // Until the last steps, as rows of `out` may push each other out of the cache.
  alignas(64) float kept[kPanelLanes * kPanelLanes];
  for (int64_t step = 0; step < num_steps; step += kNearSteps) {
    const int64_t left = num_steps - step;
    const uint16_t* const columns = second + step * kStepSize;
    for (int64_t row = 0; row < kPanelLanes; row += kRowsAtOnce) {
      const uint16_t* const rows = first + step * kStepSize + row * kStepDepth;
      float* const sums = kept + row * kPanelLanes;
      const float* const before = step > 0 ? sums : nullptr;
      if (left > kNearSteps) {
        multiply_eight_rows(kNearSteps, rows, columns, row, before, sums, kPanelLanes,
                            /*adds=*/false);
      } else {
        multiply_eight_rows(left, rows, columns, row, before, out + row * stride, stride, adds);
      }
    }
  }
}
template void multiply_panels_by_vectors(int64_t num_steps, const uint16_t* first,
                                         const uint16_t* second, float* out, int64_t stride,
                                         bool adds);
template void multiply_panels_by_vectors(int64_t num_steps, const uint16_t* first,
                                         const uint16_t* second, uint16_t* out, int64_t stride,
                                         bool adds);

void put_sums(const float* sums, int64_t num_rows, int64_t num_columns, float* out,
              int64_t out_stride, bool adds) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t column = 0; column < num_columns; column += kTileLanes) {
      const __mmask16 is_there = mask(num_columns - column);
      float* const to = out + row * out_stride + column;
      __m512 value = _mm512_loadu_ps(sums + row * kPanelLanes + column);
      if (adds) value = _mm512_add_ps(_mm512_maskz_loadu_ps(is_there, to), value);
      _mm512_mask_storeu_ps(to, is_there, value);
    }
  }
}

void put_sums(const float* sums, int64_t num_rows, int64_t num_columns, uint16_t* out,
              int64_t out_stride) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t column = 0; column < num_columns; column += kTileLanes) {
      const __m512 value = _mm512_loadu_ps(sums + row * kPanelLanes + column);
      _mm256_mask_storeu_epi16(out + row * out_stride + column, mask(num_columns - column),
                               reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
    }
  }
}

}  // namespace atl::model
#endif
