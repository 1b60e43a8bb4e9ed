#pragma once
// Numbers to few bytes and back, with a stated error: what the islands send each other. Works on
// spans, so it is fuzzed and simulated without LibTorch. The bytes are the same on every machine
// (integer arithmetic on the bits of the floats; no fused multiply-add), because members compare
// digests of what they decoded.
//
// An encoding describes itself: a header of kHeaderBytes (magic u16, kind u8, version u8, count
// u32, sequence u32, name u32, all little-endian), then the body. `name` is a hash of the codec's
// name, which carries its settings. Decoding reads what strangers send: it checks everything, never
// reads or writes out of bounds and never allocates from a length it was told.
//
// `sequence` numbers what the members encode alike, say the rounds: masks that all share are drawn
// from it, so they cost no bytes. Codecs without such a mask only carry it. It has to go up by one
// each time that the same values are sent (masks.h says why).
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
  static constexpr size_t kHeaderBytes = 16;

  virtual ~Codec() = default;
  virtual std::string_view name() const = 0;
  /// Of the body, for large counts.
  virtual double bits_per_value() const = 0;
  /// |decode(encode(x)) - x| <= relative * |x| + absolute + of_largest * m, for every value it
  /// accepts. m is the largest magnitude in the value's block: the values are cut into blocks of
  /// block_size, from the first on (0: all are one block).
  struct ErrorBound {
    double relative = 0;
    double absolute = 0;
    double of_largest = 0;
    size_t block_size = 0;
  };
  virtual ErrorBound error_bound() const = 0;
  /// The largest magnitude that encode() accepts: what is above would round to infinity.
  virtual float largest() const = 0;
  /// Whether encode() does: no value is NaN or beyond largest().
  bool accepts(std::span<const float> values) const;
  /// Whether every value travels. Codecs that leave some out (top-k, masks) decode those as zero:
  /// whoever uses one must send later what was left out, or lose it.
  virtual bool is_dense() const { return true; }

  /// The most bytes, header included, that encode() makes of `count` values (at most 2^32 - 1).
  size_t max_encoded_bytes(size_t count) const { return kHeaderBytes + max_body_bytes(count); }

  /// The first kHeaderBytes of an encoding of `count` values.
  Bytes header(size_t count, uint32_t sequence) const;

  /// Appends the encoding to `out`. Throws InputError naming the first index whose value is not
  /// one that it accepts; `out` is then as it was.
  void encode(std::span<const float> values, Bytes& out, uint32_t sequence = 0) const;

  /// Throws InputError unless `bytes` is laid out exactly as an encoding by this codec of
  /// values.size() values under `sequence` (header, length, scales, as many positions in each place
  /// as are kept there, zeros wherever nothing is said) and means finite values; `values` is then
  /// unspecified. It does not ask whether encode() would have chosen these scales, positions and
  /// codes: other bytes can mean the same values, and some mean values that it never sends.
  void decode(std::span<const std::byte> bytes, std::span<float> values,
              uint32_t sequence = 0) const;

 protected:
  static constexpr size_t kAllFinite = ~size_t{0};
  struct Encoded {
    size_t bytes = 0;               // Of the body.
    size_t first_bad = kAllFinite;  // Index of the first value that is not accepted.
  };
  /// Names the family of codecs on the wire. Never reused.
  virtual uint8_t kind() const = 0;
  virtual uint8_t version() const { return 1; }
  virtual size_t max_body_bytes(size_t count) const = 0;
  /// Writes the body; it has room for max_body_bytes(values.size()).
  virtual Encoded encode_body(std::span<const float> values, uint32_t sequence,
                              std::span<std::byte> body) const = 0;
  /// Returns the index of the first value that is not finite, or kAllFinite. Throws InputError when
  /// `body` is not laid out as one for values.size() values (see decode()); any bytes may come.
  virtual size_t decode_body(std::span<const std::byte> body, uint32_t sequence,
                             std::span<float> values) const = 0;
  /// For codecs made of codecs: these three of another one.
  static size_t max_body_bytes_of(const Codec& codec, size_t count) {
    return codec.max_body_bytes(count);
  }
  static Encoded encode_body_of(const Codec& codec, std::span<const float> values,
                                uint32_t sequence, std::span<std::byte> body) {
    return codec.encode_body(values, sequence, body.first(codec.max_body_bytes(values.size())));
  }
  static size_t decode_body_of(const Codec& codec, std::span<const std::byte> body,
                               uint32_t sequence, std::span<float> values) {
    return codec.decode_body(body, sequence, values);
  }
  /// Throws InputError naming the codec unless body.size() == expected.
  void require_size(std::span<const std::byte> body, size_t expected, size_t count) const;
};

/// The codec of that name: one of codec_names() or a composition such as
/// "rolling(0.1)+topk(0.2)+sign3"; registry.cpp has the grammar. Throws UsageError naming what is
/// known, or the range of a setting.
std::unique_ptr<Codec> make_codec(std::string_view name);

/// The names without settings, sorted; aliases of compositions are among them.
std::vector<std::string> codec_names();

}  // namespace atl::codec
