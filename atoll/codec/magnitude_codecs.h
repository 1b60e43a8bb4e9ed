#pragma once
// A sign and a coarse magnitude, on a grid fitted to the magnitudes of each block: sign3 and stat2.
// Made for what top-k leaves, values with a gap around zero that other grids would waste codes on.
#include <memory>

#include "atoll/codec/codec.h"

namespace atl::codec {

/// Sign and 3 bits; blocks of 128 values; 4.25 bits per value. Over the block's magnitudes,
///
///   lo = bf16(min |x|), hi = bf16(max |x|), step = (hi - lo) / 7,
///   c = round((|x| - lo) * (1 / step)) in 0..7 (ties to even), |x| ~ lo + c step.
///
/// lo and hi (bf16) go first; a code is sign * 8 + c. Against CocktailSGD's 4-bit grid the squared
/// error after top-k is about half. Blocks with max |x| below 2^-100 become zeros (hi = 0).
std::unique_ptr<Codec> make_sign3_codec();

/// Sign and 1 bit; blocks of 64 values (as many as SparseLoCo keeps of 4096); 2.5 bits per value.
/// The magnitudes are split at their mean t, and each part is represented by its own mean:
///
///   low = bf16(mean of |x| <= t), high = bf16(mean of |x| > t), or low where there is none.
///
/// low and high go first; a code is sign * 2 + (|x| > t). Sums are taken in double precision, in
/// order. SparseLoCo (2508.15706) states 2 bits per value and leaves the levels open. Levels below
/// 2^-100 become zero.
std::unique_ptr<Codec> make_stat2_codec();

}  // namespace atl::codec
