#pragma once
// Subsets that all members know without being told: they follow from the number of values and the
// sequence. Which values get their turn is decided in advance, so the sequence has to go up by one
// each time that the same values are sent; if it went up by ten, rolling(0.1) would send the same
// tenth for ever.
#include <memory>

#include "atoll/codec/codec.h"

namespace atl::codec {

constexpr double kMinShare = 0.0001;  // Of masks and top-k.

/// Keeps the positions i with i mod s == sequence mod s: all of them once in s turns. `stride` is
/// s, from 2 on; `stage` names the codec in compositions.
std::unique_ptr<Codec> make_rolling_codec(std::string_view stage, size_t stride,
                                          std::unique_ptr<Codec> inner);

/// Keeps k = round(share * n) positions, at least one: the positions are cut into k runs of equal
/// length, floor(j n / k) to floor((j + 1) n / k), and one is drawn from each. The draws are 32
/// bits r of random_bits(0, sequence, j / 2), the low half for even j, taken as r * length >> 32.
std::unique_ptr<Codec> make_random_codec(std::string_view stage, double share,
                                         std::unique_ptr<Codec> inner);

}  // namespace atl::codec
