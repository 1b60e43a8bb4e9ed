#include "atoll/codec/plain_codecs.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace atl::codec {
namespace {

constexpr uint32_t kExponentMask = 0x7f80'0000;

/// NaN and the infinities have all bits of the exponent set.
bool is_finite(uint32_t bits) { return (bits & kExponentMask) != kExponentMask; }

/// Round to nearest, ties to even: adding just under half a unit, plus one when the kept part is
/// odd, carries exactly when it must. Finite values only; the result may be infinite.
uint32_t round_to_bf16(uint32_t bits) { return (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; }

uint32_t bits_at(std::span<const float> values, size_t index) {
  return std::bit_cast<uint32_t>(values[index]);
}

class Fp32Codec final : public Codec {
 public:
  std::string_view name() const override { return "fp32"; }
  double bits_per_value() const override { return 32; }
  ErrorBound error_bound() const override { return {}; }

 protected:
  uint8_t kind() const override { return 1; }
  size_t max_body_bytes(size_t count) const override { return 4 * count; }
  Encoded encode_body(std::span<const float> values, uint32_t /*sequence*/,
                      std::span<std::byte> body) const override {
    const size_t bad = first_not_finite(values);
    if (bad == kAllFinite && !body.empty()) {
      std::memcpy(body.data(), values.data(), body.size());
    }
    return {body.size(), bad};
  }
  size_t decode_body(std::span<const std::byte> body, uint32_t /*sequence*/,
                     std::span<float> values) const override {
    require_size(body, max_body_bytes(values.size()), values.size());
    if (!body.empty()) std::memcpy(values.data(), body.data(), body.size());
    return first_not_finite(values);
  }

 private:
  static size_t first_not_finite(std::span<const float> values) {
    uint32_t any_bad = 0;  // One pass without branches: the compiler vectorises it.
    for (size_t i = 0; i < values.size(); ++i) {
      any_bad |= static_cast<uint32_t>(!is_finite(bits_at(values, i)));
    }
    if (any_bad == 0) return kAllFinite;
    size_t index = 0;
    while (is_finite(bits_at(values, index))) ++index;
    return index;
  }
};

class Bf16Codec final : public Codec {
 public:
  std::string_view name() const override { return "bf16"; }
  double bits_per_value() const override { return 16; }
  ErrorBound error_bound() const override { return {.relative = 0x1p-8, .absolute = 0x1p-134}; }

 protected:
  uint8_t kind() const override { return 2; }
  size_t max_body_bytes(size_t count) const override { return 2 * count; }

  Encoded encode_body(std::span<const float> values, uint32_t /*sequence*/,
                      std::span<std::byte> body) const override {
    uint32_t any_bad = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = bits_at(values, i);
      const uint32_t rounded = round_to_bf16(bits);
      // The sum of a NaN may have carried out of the exponent: look at the value as well.
      any_bad |= static_cast<uint32_t>(!is_finite(bits));
      any_bad |= static_cast<uint32_t>(!is_finite(rounded << 16));
      const auto half = static_cast<uint16_t>(rounded);
      std::memcpy(body.data() + 2 * i, &half, sizeof(half));
    }
    if (any_bad == 0) return {body.size(), kAllFinite};
    size_t index = 0;
    while (is_finite(bits_at(values, index)) &&
           is_finite(round_to_bf16(bits_at(values, index)) << 16)) {
      ++index;
    }
    return {0, index};
  }

  size_t decode_body(std::span<const std::byte> body, uint32_t /*sequence*/,
                     std::span<float> values) const override {
    require_size(body, max_body_bytes(values.size()), values.size());
    uint32_t any_bad = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, body.data() + 2 * i, sizeof(half));
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      any_bad |= static_cast<uint32_t>(!is_finite(bits));
      values[i] = std::bit_cast<float>(bits);
    }
    if (any_bad == 0) return kAllFinite;
    size_t index = 0;
    while (is_finite(bits_at(values, index))) ++index;
    return index;
  }
};

}  // namespace

std::unique_ptr<Codec> make_fp32_codec() { return std::make_unique<Fp32Codec>(); }
std::unique_ptr<Codec> make_bf16_codec() { return std::make_unique<Bf16Codec>(); }

}  // namespace atl::codec
