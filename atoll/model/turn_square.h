// Squares of words in registers, turned about their diagonal. Who includes it names ATOLL_LANES,
// the words of a register, and is compiled for a processor of its own: no inline function of the
// standard library is used, as the linker might take that copy of it for the whole program.
#include <cstdint>

namespace atl::model {
namespace {

constexpr int kLanes = ATOLL_LANES;

using Words = uint32_t __attribute__((vector_size(kLanes * sizeof(uint32_t))));

template <int... kLane>
struct Sequence {};
#if ATOLL_LANES == 16
using Lanes = Sequence<0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15>;
#elif ATOLL_LANES == 8
using Lanes = Sequence<0, 1, 2, 3, 4, 5, 6, 7>;
#else
using Lanes = Sequence<0, 1, 2, 3>;
#endif

/// Swaps the corners of squares of 2 kStep words: part of turning a matrix about its diagonal.
template <int kStep, int... kLane>
__attribute__((always_inline)) inline void swap_corners(Words& upper, Words& lower,
                                                        Sequence<kLane...>) {
  const Words a = upper;
  const Words b = lower;
  upper = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kLanes + kLane - kStep : kLane)...);
  lower = __builtin_shufflevector(a, b, ((kLane & kStep) != 0 ? kLanes + kLane : kLane + kStep)...);
}

template <int kStep>
__attribute__((always_inline)) inline void turn_square(Words* square) {
#pragma GCC unroll 16
  for (int row = 0; row < kLanes; ++row) {
    if ((row & kStep) == 0) swap_corners<kStep>(square[row], square[row + kStep], Lanes{});
  }
  if constexpr (kStep > 1) turn_square<kStep / 2>(square);
}

}  // namespace
}  // namespace atl::model
