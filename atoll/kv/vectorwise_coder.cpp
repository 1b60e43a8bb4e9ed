#include "atoll/kv/vectorwise_coder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/clones.h"
#include "atoll/base/error.h"
#include "atoll/codec/float_bits.h"
#include "atoll/kv/tables.h"

namespace atl::kv {
namespace {

constexpr size_t kGroup = 10;
constexpr float kAnchorSteps = 127;
constexpr int kLeastExponent = -100;  // Of a scale: what is smaller is as good as 0.
constexpr int kRoots = 8;
constexpr int kMostExponent = 127;  // Of a value, before which it ends.
static_assert(kMostScale == kRoots * (kMostExponent - kLeastExponent) + 1);
/// A token 8 times as large has a scale of its own.
constexpr int16_t kFarBeyond = 3 * kRoots;
constexpr uint16_t kMagnitude = 0x7FFF;
constexpr uint16_t kTooLarge = 0x7F00;  // 2^127.
constexpr int32_t kMostNumber = 32'000;
constexpr uint8_t kOwnTables = 2;  // Beside the mode.

/// 2^(i/8).
constexpr std::array<float, kRoots> kRoot = {1.0F,       1.0905077F, 1.1892071F, 1.2968396F,
                                             1.4142135F, 1.5422108F, 1.6817929F, 1.8340081F};

ATOLL_INLINE float float_of(uint16_t bf16) { return codec::float_of(uint32_t{bf16} << 16); }
ATOLL_INLINE uint16_t bf16_of(float value) {
  return static_cast<uint16_t>(codec::round_to_bf16(codec::bits_of(value)));
}

ATOLL_CLONES void take_most(const uint16_t* from, size_t count, uint16_t* most) {
  for (size_t t = 0; t < count; ++t) {
    const auto magnitude = static_cast<uint16_t>(from[t] & kMagnitude);
    most[t] = std::max(most[t], magnitude);
  }
}

/// to = (x - base) * factor * steps, rounded. Returns the largest magnitude.
ATOLL_CLONES int32_t quantise(const uint16_t* x, const float* base, const float* factor,
                              float steps, size_t count, int16_t* to) {
  int32_t most = 0;
  for (size_t t = 0; t < count; ++t) {
    // What is beyond all numbers is cut off, and told.
    const float scaled = std::clamp((float_of(x[t]) - base[t]) * (factor[t] * steps), -1e6F, 1e6F);
    const int32_t number = codec::round_to_int(scaled);
    to[t] = static_cast<int16_t>(number);
    most = std::max(most, std::abs(number));
  }
  return most;
}

ATOLL_CLONES void dequantise(const int16_t* numbers, const float* base, const float* scale,
                             float share, size_t count, uint16_t* to) {
  for (size_t t = 0; t < count; ++t) {
    to[t] = bf16_of(base[t] + static_cast<float>(numbers[t]) * (scale[t] * share));
  }
}

/// Of a plane's tokens, and what is multiplied with before values are rounded.
struct Scales {
  std::vector<float> scales_T, factors_T;

  explicit Scales(std::span<const int16_t> indices_T) {
    for (const int16_t index : indices_T) {
      const float scale = scale_of(index);
      scales_T.push_back(scale);
      factors_T.push_back(scale == 0 ? 0 : 1 / scale);
    }
  }
};

/// An anchor's, where its channel's are fewer.
float anchor_steps(float steps) { return std::max(steps, kAnchorSteps); }

/// What the tokens of an anchor's group are told from: its value, but a token of zeros stays one.
void spread(float anchor, std::span<const float> scales_T, std::span<float> base_T) {
  for (size_t t = 0; t < base_T.size(); ++t) base_T[t] = scales_T[t] == 0 ? 0 : anchor;
}

/// A plane's numbers: of tokens, or of the anchors among them and of the others.
struct Numbers {
  std::vector<int16_t> others_CT;
  std::vector<int16_t> anchors_CT;
};

/// Where the tokens of a plane are in its numbers.
class Places {
 public:
  Places(VectorwiseMode mode, size_t num_tokens)
      : is_anchored_(mode == VectorwiseMode::kAnchored), num_tokens_(num_tokens) {}

  size_t num_anchors() const { return is_anchored_ ? (num_tokens_ + kGroup - 1) / kGroup : 0; }
  size_t num_others() const { return num_tokens_ - num_anchors(); }
  /// The first token of a group that is none, and how many they are.
  template <typename F>
  void for_groups(const F& visit) const {
    if (!is_anchored_) return visit(size_t{0}, num_tokens_);
    for (size_t anchor = 0; anchor < num_tokens_; anchor += kGroup) {
      visit(anchor + 1, std::min(kGroup, num_tokens_ - anchor) - 1);
    }
  }

 private:
  bool is_anchored_;
  size_t num_tokens_;
};

std::vector<int16_t> scales_of(std::span<const uint16_t> plane_CT, size_t num_tokens,
                               int16_t usual_scale) {
  std::vector<uint16_t> most(num_tokens);
  for (size_t at = 0; at < plane_CT.size(); at += num_tokens) {
    take_most(plane_CT.data() + at, num_tokens, most.data());
  }
  std::vector<int16_t> scales;
  for (const uint16_t magnitude : most) {
    if (magnitude >= kTooLarge) throw InputError("keys or values are not finite, or nearly so");
    const int16_t own = scale_number(float_of(magnitude));
    const bool is_usual = usual_scale > 0 && own > 0 && own <= usual_scale + kFarBeyond;
    scales.push_back(is_usual ? usual_scale : own);
  }
  return scales;
}

/// Nothing where a difference is beyond all numbers.
std::optional<Numbers> numbers_of(std::span<const uint16_t> plane_CT,
                                  std::span<const int16_t> scales_T, std::span<const float> steps_C,
                                  VectorwiseMode mode) {
  const size_t num_tokens = scales_T.size();
  const Scales scales(scales_T);
  const Places places(mode, num_tokens);
  Numbers numbers;
  std::vector<float> base(num_tokens);
  std::vector<int16_t> row(num_tokens);
  int32_t most = 0;
  for (size_t c = 0; c < steps_C.size(); ++c) {
    const uint16_t* const x = plane_CT.data() + c * num_tokens;
    const float of_anchors = anchor_steps(steps_C[c]);
    for (size_t i = 0; i < places.num_anchors(); ++i) {
      const size_t anchor = i * kGroup;
      const float none = 0;
      int16_t number = 0;
      quantise(x + anchor, &none, &scales.factors_T[anchor], of_anchors, 1, &number);
      numbers.anchors_CT.push_back(number);
      const size_t count = std::min(kGroup, num_tokens - anchor);
      spread(static_cast<float>(number) * (scales.scales_T[anchor] * (1 / of_anchors)),
             std::span(scales.scales_T).subspan(anchor, count),
             std::span(base).subspan(anchor, count));
    }
    most = std::max(most, quantise(x, base.data(), scales.factors_T.data(), steps_C[c], num_tokens,
                                   row.data()));
    places.for_groups([&](size_t first, size_t count) {
      const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
      numbers.others_CT.insert(numbers.others_CT.end(), begin,
                               begin + static_cast<std::ptrdiff_t>(count));
    });
  }
  if (most > kMostNumber) return std::nullopt;
  return numbers;
}

std::vector<int16_t> decode_numbers(ByteReader& in, size_t num_channels, size_t num_tokens,
                                    std::span<const ValueTable> tables_C) {
  std::vector<int16_t> numbers_CT(num_channels * num_tokens);
  if (num_tokens > 0) decode_planes(in, 1, num_channels, tables_C, numbers_CT);
  return numbers_CT;
}

void encode_numbers(std::span<const int16_t> numbers_CT, size_t num_channels,
                    std::span<const ValueTable> tables_C, Bytes& out) {
  if (!numbers_CT.empty()) encode_planes(numbers_CT, 1, num_channels, tables_C, out);
}

/// Nothing where that is not possible in this mode.
std::optional<Bytes> encode_plane(std::span<const uint16_t> plane_CT,
                                  std::span<const int16_t> scales_T, std::span<const float> steps_C,
                                  const VectorwisePlane& how) {
  const auto numbers = numbers_of(plane_CT, scales_T, steps_C, how.mode);
  if (!numbers) return std::nullopt;
  const size_t num_channels = steps_C.size();
  const uint8_t own = how.tables_C.empty() ? kOwnTables : 0;
  Bytes out{static_cast<std::byte>(static_cast<uint8_t>(how.mode) | own)};
  encode_numbers(scales_T, 1, {}, out);
  encode_numbers(numbers->anchors_CT, num_channels, how.anchors_C, out);
  encode_numbers(numbers->others_CT, num_channels, how.tables_C, out);
  return out;
}

/// Of each channel; adds what its numbers cost to `bits`.
std::vector<ValueTable> tables_of(std::span<const int16_t> numbers_CT, size_t num_channels,
                                  double& bits) {
  std::vector<ValueTable> tables;
  const size_t count = numbers_CT.size() / num_channels;
  for (size_t c = 0; c < num_channels; ++c) {
    const FittedTable fitted = fit_table(numbers_CT.subspan(c * count, count));
    bits += fitted.bits;
    tables.push_back(fitted.table);
  }
  return tables;
}

}  // namespace

float scale_of(int16_t index) {
  if (index == 0) return 0;
  return std::ldexp(kRoot[static_cast<size_t>(index - 1) % kRoots],
                    kLeastExponent + (index - 1) / kRoots);
}

int16_t scale_number(float most) {
  if (most < std::ldexp(1.0F, kLeastExponent)) return 0;
  int exponent = 0;
  std::frexp(most, &exponent);  // most < 2^exponent.
  auto index = static_cast<int16_t>(kRoots * (exponent - 1 - kLeastExponent) + 1);
  while (scale_of(index) < most) ++index;
  return index;
}

FittedPlane fit_vectorwise(std::span<const uint16_t> plane_CT, std::span<const float> steps_C,
                           int16_t usual_scale) {
  const size_t num_channels = steps_C.size();
  const std::vector<int16_t> scales_T =
      scales_of(plane_CT, plane_CT.size() / num_channels, usual_scale);
  std::optional<FittedPlane> best;
  for (const auto mode : {VectorwiseMode::kDirect, VectorwiseMode::kAnchored}) {
    const auto numbers = numbers_of(plane_CT, scales_T, steps_C, mode);
    if (!numbers) continue;
    FittedPlane fitted{
        .plane = {.mode = mode, .usual_scale = usual_scale, .tables_C = {}, .anchors_C = {}}};
    fitted.plane.tables_C = tables_of(numbers->others_CT, num_channels, fitted.bits);
    if (mode == VectorwiseMode::kAnchored) {
      fitted.plane.anchors_C = tables_of(numbers->anchors_CT, num_channels, fitted.bits);
    }
    if (!best || fitted.bits < best->bits) best = std::move(fitted);
  }
  return std::move(*best);
}

void encode_vectorwise(std::span<const uint16_t> kv_PCT, size_t num_channels,
                       std::span<const float> steps_PC, std::span<const VectorwisePlane> planes_P,
                       Bytes& out) {
  const size_t num_planes = steps_PC.size() / num_channels;
  const size_t num_tokens = kv_PCT.size() / steps_PC.size();
  const size_t size = num_channels * num_tokens;
  ATOLL_CHECK(num_tokens > 0 && kv_PCT.size() == num_planes * size);
  ATOLL_CHECK(planes_P.empty() || planes_P.size() == num_planes);
  for (size_t p = 0; p < num_planes; ++p) {
    const auto plane_CT = kv_PCT.subspan(p * size, size);
    const auto steps_C = steps_PC.subspan(p * num_channels, num_channels);
    const std::vector<int16_t> scales_T =
        scales_of(plane_CT, num_tokens, planes_P.empty() ? 0 : planes_P[p].usual_scale);
    std::optional<Bytes> best;
    if (!planes_P.empty()) best = encode_plane(plane_CT, scales_T, steps_C, planes_P[p]);
    if (!best) {
      best = encode_plane(plane_CT, scales_T, steps_C, {.mode = VectorwiseMode::kDirect});
      auto other = encode_plane(plane_CT, scales_T, steps_C, {.mode = VectorwiseMode::kAnchored});
      if (other && other->size() < best->size()) best = std::move(other);
    }
    out.insert(out.end(), best->begin(), best->end());
  }
}

void decode_vectorwise(ByteReader& in, size_t num_channels, std::span<const float> steps_PC,
                       std::span<const VectorwisePlane> planes_P, std::span<uint16_t> kv_PCT) {
  const size_t num_planes = steps_PC.size() / num_channels;
  ATOLL_CHECK(planes_P.empty() || planes_P.size() == num_planes);
  const size_t num_tokens = kv_PCT.size() / steps_PC.size();
  const size_t size = num_channels * num_tokens;
  for (size_t p = 0; p < num_planes; ++p) {
    const auto said = in.get<uint8_t>();
    const auto mode = VectorwiseMode{static_cast<uint8_t>(said & 1U)};
    const bool is_own = (said & kOwnTables) != 0;
    if (said > 3) throw InputError("a plane of keys or values is of an unknown mode");
    if (!is_own && (planes_P.empty() || planes_P[p].mode != mode)) {
      throw InputError("a plane of keys or values wants tables that are not here");
    }
    const VectorwisePlane none;
    const VectorwisePlane& how = is_own ? none : planes_P[p];
    const std::vector<int16_t> scales_T = decode_numbers(in, 1, num_tokens, {});
    if (std::ranges::any_of(scales_T, [](int16_t s) { return s < 0 || s > kMostScale; })) {
      throw InputError("a plane of keys or values has a scale beyond all");
    }
    const Places places(mode, num_tokens);
    const auto anchors_CT = decode_numbers(in, num_channels, places.num_anchors(), how.anchors_C);
    const auto others_CT = decode_numbers(in, num_channels, places.num_others(), how.tables_C);
    const Scales scales(scales_T);
    std::vector<float> base(num_tokens);
    for (size_t c = 0; c < num_channels; ++c) {
      const float steps = steps_PC[p * num_channels + c];
      const float of_anchors = 1 / anchor_steps(steps);
      uint16_t* const to = kv_PCT.data() + p * size + c * num_tokens;
      for (size_t i = 0; i < places.num_anchors(); ++i) {
        const size_t anchor = i * kGroup;
        const float value = static_cast<float>(anchors_CT[c * places.num_anchors() + i]) *
                            (scales.scales_T[anchor] * of_anchors);
        to[anchor] = bf16_of(value);
        const size_t count = std::min(kGroup, num_tokens - anchor);
        spread(value, std::span(scales.scales_T).subspan(anchor, count),
               std::span(base).subspan(anchor, count));
      }
      const int16_t* next = others_CT.data() + c * places.num_others();
      places.for_groups([&](size_t first, size_t count) {
        dequantise(next, base.data() + first, scales.scales_T.data() + first, 1 / steps, count,
                   to + first);
        next += count;
      });
    }
  }
}

}  // namespace atl::kv
