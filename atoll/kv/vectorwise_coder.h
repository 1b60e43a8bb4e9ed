#pragma once
// CacheGen's levels (Liu et al. 2024, section 5): each token's channels of a plane share a scale,
// values are rounded to so many steps of it, and each channel's numbers are entropy-coded with a
// table of its own. Beyond the paper each channel has its own steps, since errors are dearer in
// some than in others.
//
// Two modes, by plane. Direct: each token by itself. Anchored: of ten tokens the first one, the
// anchor, is kept in 127 steps or more, and the others as what they differ from it, as it will be
// read back (from the original errors would add up), in steps of their own scale, so that the error
// is the direct mode's. Which of them takes fewer bits hangs on how alike neighbouring tokens are:
// it is measured, never assumed.
//
// A scale is the least 8th power of two's root, 2^(k/8), that no magnitude of the token exceeds,
// or the plane's usual one, where there is one and the token is not far beyond it: errors are not
// the cheaper where a token is large. The last group may have fewer tokens; a token of zeros has
// the scale 0.
//
// Shapes: P = planes (a layer's keys, or its values), C = channels of a plane, T = tokens.
#include <cstdint>
#include <span>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/kv/value_coder.h"

namespace atl::kv {

enum class VectorwiseMode : uint8_t { kDirect, kAnchored };

/// The number of the least scale that a magnitude does not exceed, and that scale.
int16_t scale_number(float most);
float scale_of(int16_t number);
constexpr int16_t kMostScale = 8 * 227 + 1;

/// What was fitted to a model: of each plane.
struct VectorwisePlane {
  VectorwiseMode mode = VectorwiseMode::kDirect;
  int16_t usual_scale = 0;            // Its number; 0: each token has its own.
  std::vector<ValueTable> tables_C;   // Of each token's numbers; anchored: of the differences,
  std::vector<ValueTable> anchors_C;  // and of the anchors. Empty: they travel with the numbers.
};

constexpr float kLeastSteps = 0.25F;
constexpr float kMostSteps = 1000;

/// Appends the planes to `out`; the bits of bfloat16s. `steps_PC`: from 0 to a token's scale,
/// kLeastSteps to kMostSteps of each channel (CacheGen's bins / 2 - 1). `planes_P`: as
/// decode_vectorwise() has it; empty: modes and tables are those of the values. Throws InputError
/// where a value is not finite, or 2^127 and more.
void encode_vectorwise(std::span<const uint16_t> kv_PCT, size_t num_channels,
                       std::span<const float> steps_PC, std::span<const VectorwisePlane> planes_P,
                       Bytes& out);

/// The mode in which a sample of a plane (C, T) takes fewer bits, with tables of its own; ten
/// tokens that follow on each other make a group. `bits`: that they take. Throws as
/// encode_vectorwise().
struct FittedPlane {
  VectorwisePlane plane;
  double bits = 0;
};
FittedPlane fit_vectorwise(std::span<const uint16_t> plane_CT, std::span<const float> steps_C,
                           int16_t usual_scale);

/// Throws InputError where `in` is no such encoding.
void decode_vectorwise(ByteReader& in, size_t num_channels, std::span<const float> steps_PC,
                       std::span<const VectorwisePlane> planes_P, std::span<uint16_t> kv_PCT);

}  // namespace atl::kv
