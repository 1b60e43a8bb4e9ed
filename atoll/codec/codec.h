#pragma once
// Numbers to few bytes and back, with a stated error: what the islands send each other. Works on
// spans, so it is fuzzed and simulated without LibTorch. The bytes are the same on every machine
// (integer arithmetic on the bits of the floats; no fused multiply-add), because members compare
// digests of what they decoded.
//
// An encoding describes itself: a header of kHeaderBytes (magic u16, kind u8, version u8, count
// u32, all little-endian), then the body. Decoding reads what strangers send: it checks everything,
// never reads or writes out of bounds and never allocates from a length it was told.
//
// Codecs hold no state between calls: any thread may use one at any time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/bytes.h"

namespace atl::codec {

class Codec {
 public:
  static constexpr size_t kHeaderBytes = 8;

  virtual ~Codec() = default;
  virtual std::string_view name() const = 0;
  /// Of the body, for large counts.
  virtual double bits_per_value() const = 0;
  /// |decode(encode(x)) - x| <= relative * |x| + absolute, for every finite value it accepts.
  struct ErrorBound {
    double relative = 0;
    double absolute = 0;
  };
  virtual ErrorBound error_bound() const = 0;

  /// Bytes, header included, that encode() makes of `count` values (at most 2^32 - 1).
  size_t encoded_bytes(size_t count) const { return kHeaderBytes + body_bytes(count); }

  /// Appends the encoding to `out`. Throws InputError naming the first index whose value is NaN,
  /// infinite or rounds to infinity; `out` is then as it was.
  void encode(std::span<const float> values, Bytes& out) const;

  /// Throws InputError unless `bytes` is exactly one encoding, by this codec, of values.size()
  /// finite values; `values` is then unspecified.
  void decode(std::span<const std::byte> bytes, std::span<float> values) const;

 protected:
  static constexpr size_t kAllFinite = ~size_t{0};
  /// Names the codec on the wire. Never reused.
  virtual uint8_t kind() const = 0;
  virtual uint8_t version() const { return 1; }
  virtual size_t body_bytes(size_t count) const = 0;
  /// Both return the index of the first value that is not finite, or kAllFinite. `body` has exactly
  /// body_bytes(values.size()).
  virtual size_t encode_body(std::span<const float> values, std::span<std::byte> body) const = 0;
  virtual size_t decode_body(std::span<const std::byte> body, std::span<float> values) const = 0;
};

/// The codec of that name; throws UsageError naming those that exist.
std::unique_ptr<Codec> make_codec(std::string_view name);

/// All names, sorted.
std::vector<std::string> codec_names();

}  // namespace atl::codec
