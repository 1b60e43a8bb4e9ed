// Dot products of rows with weights as they lie, for product_loops.h's instruction set; compiled by
// the same files. Nothing is turned or packed before: the registers run along the inputs.
#include "atoll/model/dot_formats.h"

namespace atl::model {
namespace {

constexpr int64_t kCacheLine = 64;
constexpr int kParts = kSumLanes / kLanes;  // Registers that hold the chains of one value.

/// One register of upper and lower lanes, kStep apart, of two.
template <int kStep>
__attribute__((always_inline)) inline Floats sum_of_corners(Floats a, Floats b) {
  auto upper = reinterpret_cast<Words>(a);
  auto lower = reinterpret_cast<Words>(b);
  swap_corners<kStep>(upper, lower, Lanes{});
  return reinterpret_cast<Floats>(upper) + reinterpret_cast<Floats>(lower);
}

template <int... kLane>
__attribute__((always_inline)) inline Floats even_lanes(Floats a, Sequence<kLane...>) {
  return __builtin_shufflevector(a, a, (2 * kLane % kLanes)...);
}

/// Lane i is the sum of all lanes of register i, of kLanes registers or half as many: those kStep
/// apart are added first, then those half as far apart.
template <int kCount, int kStep = kLanes / 2>
__attribute__((always_inline)) inline Floats summed(const Floats* registers) {
  if constexpr (kStep == 0) {
    return registers[0];
  } else if constexpr (kCount == 1) {
    return even_lanes(sum_of_corners<kStep>(registers[0], registers[0]), Lanes{});
  } else {
    constexpr int kHalf = kCount / 2;
    Floats halves[kHalf];
#pragma GCC unroll 16
    for (int i = 0; i < kHalf; ++i) {
      halves[i] = sum_of_corners<kStep>(registers[i], registers[i + kHalf]);
    }
    return summed<kHalf, kStep / 2>(halves);
  }
}

/// All chains of each value: the first `num_valid` of each row go to `out`.
template <int kTileRows, int kOutputs, int kPadded>
__attribute__((always_inline)) inline void add_up(const DotTask& task,
                                                  Floats (&chains)[kParts][kPadded],
                                                  int64_t num_valid, float* out) {
#pragma GCC unroll 4
  for (int step = kParts / 2; step > 0; step /= 2) {
#pragma GCC unroll 4
    for (int part = 0; part < step; ++part) {
#pragma GCC unroll 32
      for (int i = 0; i < kPadded; ++i) chains[part][i] += chains[part + step][i];
    }
  }
  constexpr int kHalf = kLanes / 2;
  float values[kPadded + kHalf];
  constexpr int kWhole = kPadded / kLanes * kLanes;
#pragma GCC unroll 8
  for (int i = 0; i < kWhole; i += kLanes) store(summed<kLanes>(&chains[0][i]), values + i);
  if constexpr (kWhole < kPadded) store(summed<kHalf>(&chains[0][kWhole]), values + kWhole);
  const auto put = [&](int64_t width) __attribute__((always_inline)) {
    for (int row = 0; row < kTileRows; ++row) {
      float* const to = out + row * task.out_stride;
      for (int64_t i = 0; i < width; ++i) {
        const float value = values[row * kOutputs + i];
        to[i] = task.adds ? to[i] + value : value;
      }
    }
  };
  num_valid == kOutputs ? put(kOutputs) : put(num_valid);
}

/// What is behind the last whole kSumLanes of some rows, and zeros: read as the rows are.
template <int kCount>
struct Rest {
  float values[kCount][kSumLanes] = {};
};

/// Into the second level of caches: more can be under way to it than to the first one. Where that
/// binds, as on Zen 4, a row of bf16 is read twice as fast.
template <int64_t kBytes>
__attribute__((always_inline)) inline void foresee(const char* block) {
#pragma GCC unroll 4
  for (int64_t at = 0; at < kBytes; at += kCacheLine) __builtin_prefetch(block + at, 0, 2);
}

/// kTileRows rows by kOutputs weights, the first `num_valid` of which are wanted. One that foresees
/// asks for the next ones meanwhile.
template <int kTileRows, int kOutputs, bool kForesees, typename Format>
void dot_tile(const DotTask& task, const float* x, const void* const* weights, int64_t num_valid,
              float* out) {
  const auto row_of = [&](int output) __attribute__((always_inline)) {
    return static_cast<const char*>(weights[output]);
  };
  constexpr int kSums = kTileRows * kOutputs;
  constexpr int kHalf = kLanes / 2;
  constexpr int kPadded = (kSums + kHalf - 1) / kHalf * kHalf;
  const int64_t whole = task.count / kSumLanes * kSumLanes;
  [[maybe_unused]] Rest<kTileRows> x_rest;
  [[maybe_unused]] Rest<kOutputs> weights_rest;
  if constexpr (Format::kMayEndAnywhere) {
    for (int64_t k = whole; k < task.count; ++k) {
      for (int row = 0; row < kTileRows; ++row) {
        x_rest.values[row][k - whole] = x[row * task.x_stride + k];
      }
      for (int i = 0; i < kOutputs; ++i) {
        weights_rest.values[i][k - whole] = Format::one(row_of(i), k);
      }
    }
  }
  Floats chains[kParts][kPadded];
#pragma GCC unroll 4
  for (int part = 0; part < kParts; ++part) {
    Floats sums[kPadded] = {};
    const auto add = [&](const float* const x_row, int64_t x_stride, const Floats* factors)
                         __attribute__((always_inline)) {
#pragma GCC unroll 16
                           for (int row = 0; row < kTileRows; ++row) {
                             const Floats values = load(x_row + row * x_stride);
#pragma GCC unroll 16
                             for (int i = 0; i < kOutputs; ++i) {
                               Floats& sum = sums[row * kOutputs + i];
                               sum = fused(values, factors[i], sum);
                             }
                           }
                         };
    Floats factors[kOutputs];
    for (int64_t begin = 0; begin < whole; begin += Format::kBlock) {
      const int64_t place = begin / Format::kBlock * Format::kBytes;
      typename Format::Scales scales[kOutputs];
#pragma GCC unroll 16
      for (int i = 0; i < kOutputs; ++i) {
        scales[i].read(row_of(i) + place);
        if constexpr (kForesees) foresee<Format::kBytes>(row_of(i + kOutputs) + place);
      }
      for (int64_t k = part * kLanes; k < Format::kBlock; k += kSumLanes) {
#pragma GCC unroll 16
        for (int i = 0; i < kOutputs; ++i) {
          factors[i] = Format::at(row_of(i) + place, scales[i], k);
        }
        add(x + begin + k, task.x_stride, factors);
      }
    }
    if constexpr (Format::kMayEndAnywhere) {
      if (whole < task.count) {
        for (int i = 0; i < kOutputs; ++i)
          factors[i] = load(&weights_rest.values[i][part * kLanes]);
        add(&x_rest.values[0][part * kLanes], kSumLanes, factors);
      }
    }
#pragma GCC unroll 32
    for (int i = 0; i < kPadded; ++i) chains[part][i] = sums[i];
  }
  add_up<kTileRows, kOutputs>(task, chains, num_valid, out);
}

template <int kTileRows, bool kForesees, typename Format>
void dot_rows(const DotTask& task, const float* x, const void* const* weights, float* out) {
  constexpr int kOutputs = ATOLL_TILE_OUTPUTS(kTileRows);
  static_assert(kOutputs <= kMostTileOutputs);
  for (int64_t i = 0; i < task.num_outputs; i += kOutputs) {
    const int64_t rest = task.num_outputs - i;
    dot_tile<kTileRows, kOutputs, kForesees, Format>(task, x, weights + i,
                                                     rest < kOutputs ? rest : kOutputs, out + i);
  }
}

template <int kTileRows, bool kForesees, typename Format>
void dot_up_to(int64_t num_rows, const DotTask& task, const float* x, const void* const* weights,
               float* out) {
  if (num_rows == kTileRows) {
    dot_rows<kTileRows, kForesees, Format>(task, x, weights, out);
  } else if constexpr (kTileRows > 1) {
    dot_up_to<kTileRows - 1, kForesees, Format>(num_rows, task, x, weights, out);
  }
}

template <typename Format>
void dots(const DotTask& task, const float* x, const void* const* weights, float* out) {
  // Tiles of about the same size: one of a single row would only read weights again.
  int64_t tiles = (task.num_rows + ATOLL_TILE_ROWS - 1) / ATOLL_TILE_ROWS;
  for (int64_t row = 0; row < task.num_rows; --tiles) {
    const int64_t count = (task.num_rows - row + tiles - 1) / tiles;
    // Weights' rows are too many streams, and too short, for processors to foresee them; after the
    // first tile they are near, and what else would come near would push x out.
    constexpr auto kFirst = dot_up_to<ATOLL_TILE_ROWS, true, Format>;
    constexpr auto kOthers = dot_up_to<ATOLL_TILE_ROWS, false, Format>;
    (row == 0 ? kFirst : kOthers)(count, task, x + row * task.x_stride, weights,
                                  out + row * task.out_stride);
    row += count;
  }
}

constexpr ProductKernel kKernel = {
    kWidth,
    kRows,
    pack,
    {multiply_up_to<float, kRows>, multiply_up_to<uint16_t, kRows>},
    {dots<F32Format>, dots<Bf16Format>, dots<Q8Format>, dots<Q4Format>, dots<Q4OffsetFormat>,
     dots<Q4PartsFormat>, dots<Q5PartsFormat>, dots<Q6Format>}};

}  // namespace
}  // namespace atl::model
