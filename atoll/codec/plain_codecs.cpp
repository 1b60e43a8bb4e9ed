#include "atoll/codec/plain_codecs.h"

#include <bit>
#include <cstring>
#include <limits>

#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

// The loops look at all values without branches, so that they vectorise; where the answer is that
// something is wrong, another one finds the first place.

bool encode_fp32(const float* values, size_t count, std::byte* body) {
  if (count > 0) std::memcpy(body, values, count * sizeof(float));
  return first_not_finite({values, count}) == ~size_t{0};
}

bool decode_fp32(const std::byte* body, size_t count, float* values) {
  if (count > 0) std::memcpy(values, body, count * sizeof(float));
  return first_not_finite({values, count}) == ~size_t{0};
}

ATOLL_INLINE bool fits_bf16(float value) {
  // The sum of a NaN may carry out of the exponent: look at the value as well.
  return is_finite(value) && is_finite(float_of(round_to_bf16(bits_of(value)) << 16));
}

ATOLL_CLONES bool encode_bf16(const float* values, size_t count, std::byte* body) {
  uint32_t any_bad = 0;
  for (size_t i = 0; i < count; ++i) {
    any_bad |= static_cast<uint32_t>(!fits_bf16(values[i]));
    store(static_cast<uint16_t>(round_to_bf16(bits_of(values[i]))), body + 2 * i);
  }
  return any_bad == 0;
}

ATOLL_CLONES bool decode_bf16(const std::byte* body, size_t count, float* values) {
  uint32_t any_bad = 0;
  for (size_t i = 0; i < count; ++i) {
    const float value = float_of(static_cast<uint32_t>(load<uint16_t>(body + 2 * i)) << 16);
    any_bad |= static_cast<uint32_t>(!is_finite(value));
    values[i] = value;
  }
  return any_bad == 0;
}

constexpr uint32_t kHalfInfinity = 0x7c00;       // Half-precision magnitudes from here on are bad.
constexpr uint32_t kSmallestHalf = 0x3880'0000;  // 2^-14, the smallest normal one, as a float.
constexpr uint32_t kBiasChange = (127 - 15) << 23;

/// The bits of the nearest half-precision magnitude, from kHalfInfinity on when there is none.
ATOLL_INLINE uint32_t half_magnitude(float value) {
  const uint32_t magnitude = magnitude_bits(value);
  const uint32_t normal = (magnitude - kBiasChange + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Beside 0.5 a float's last bit is 2^-24, the unit of subnormal halves: the sum rounds to it.
  const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
  return magnitude < kSmallestHalf ? subnormal : normal;
}

ATOLL_CLONES bool encode_fp16(const float* values, size_t count, std::byte* body) {
  uint32_t any_bad = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = half_magnitude(values[i]);
    any_bad |= static_cast<uint32_t>(magnitude >= kHalfInfinity);
    const uint32_t sign = (bits_of(values[i]) >> 16) & 0x8000;
    store(static_cast<uint16_t>(magnitude | sign), body + 2 * i);
  }
  return any_bad == 0;
}

ATOLL_CLONES bool decode_fp16(const std::byte* body, size_t count, float* values) {
  uint32_t any_bad = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = load<uint16_t>(body + 2 * i);
    const uint32_t magnitude = bits & 0x7fff;
    // With the exponent of the smallest normal one, whose hidden bit is then taken off.
    const float subnormal = float_of((magnitude << 13) | kSmallestHalf) - 0x1p-14F;
    // Infinities stay such: twice the change of the bias takes 31 to 255.
    const uint32_t change = kBiasChange + (magnitude >= kHalfInfinity ? kBiasChange : 0);
    const uint32_t normal = (magnitude << 13) + change;
    const uint32_t result = magnitude < 0x400 ? bits_of(subnormal) : normal;
    any_bad |= static_cast<uint32_t>(result >= kInfinityBits);
    values[i] = float_of(result | (bits & 0x8000) << 16);
  }
  return any_bad == 0;
}

/// Loops return whether all values are finite in the new form.
struct PlainFormat {
  std::string_view name;
  uint8_t kind;
  size_t value_bytes;
  Codec::ErrorBound error_bound;
  bool (*encode)(const float* values, size_t count, std::byte* body);
  bool (*decode)(const std::byte* body, size_t count, float* values);
  float largest;  // That rounds to a finite number.
};

class PlainCodec final : public Codec {
 public:
  explicit PlainCodec(const PlainFormat& format) : format_(format) {}
  std::string_view name() const override { return format_.name; }
  double bits_per_value() const override { return 8.0 * static_cast<double>(format_.value_bytes); }
  ErrorBound error_bound() const override { return format_.error_bound; }
  float largest() const override { return format_.largest; }

 protected:
  uint8_t kind() const override { return format_.kind; }
  size_t max_body_bytes(size_t count) const override { return format_.value_bytes * count; }
  Encoded encode_body(std::span<const float> values, uint32_t /*sequence*/,
                      std::span<std::byte> body) const override {
    if (format_.encode(values.data(), values.size(), body.data())) return {body.size(), kAllFinite};
    return {0, first_beyond(format_.largest, values)};
  }
  size_t decode_body(std::span<const std::byte> body, uint32_t /*sequence*/,
                     std::span<float> values) const override {
    require_size(body, max_body_bytes(values.size()), values.size());
    if (format_.decode(body.data(), values.size(), values.data())) return kAllFinite;
    return first_not_finite(values);
  }

 private:
  const PlainFormat& format_;  // Static.
};

constexpr PlainFormat kFp32 = {
    .name = "fp32",
    .kind = 1,
    .value_bytes = 4,
    .error_bound = {},
    .encode = encode_fp32,
    .decode = decode_fp32,
    .largest = std::numeric_limits<float>::max(),
};
constexpr PlainFormat kBf16 = {
    .name = "bf16",
    .kind = 2,
    .value_bytes = 2,
    .error_bound = {.relative = 0x1p-8, .absolute = 0x1p-134},
    .encode = encode_bf16,
    .decode = decode_bf16,
    .largest = std::bit_cast<float>(0x7f7f'7fffU),
};

constexpr PlainFormat kFp16 = {
    .name = "fp16",
    .kind = 3,
    .value_bytes = 2,
    .error_bound = {.relative = 0x1p-11, .absolute = 0x1p-25},
    .encode = encode_fp16,
    .decode = decode_fp16,
    .largest = std::bit_cast<float>(0x477f'efffU),  // Just below 65520.
};

}  // namespace

std::unique_ptr<Codec> make_fp32_codec() { return std::make_unique<PlainCodec>(kFp32); }
std::unique_ptr<Codec> make_bf16_codec() { return std::make_unique<PlainCodec>(kBf16); }
std::unique_ptr<Codec> make_fp16_codec() { return std::make_unique<PlainCodec>(kFp16); }

}  // namespace atl::codec
