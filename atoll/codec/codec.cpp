#include "atoll/codec/codec.h"

#include <fmt/format.h>

#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/codec/float_bits.h"

namespace atl::codec {
namespace {

constexpr uint16_t kMagic = 0xc0de;

uint32_t name_hash(std::string_view name) {
  return static_cast<uint32_t>(xxh3(name.data(), name.size()));
}

}  // namespace

bool Codec::accepts(std::span<const float> values) const {
  return first_beyond(largest(), values) == kAllFinite;
}

Bytes Codec::header(size_t count, uint32_t sequence) const {
  ATOLL_CHECK(count <= std::numeric_limits<uint32_t>::max(), "too many values to encode");
  return ByteWriter()
      .put(kMagic)
      .put(kind())
      .put(version())
      .put(static_cast<uint32_t>(count))
      .put(sequence)
      .put(name_hash(name()))
      .take();
}

void Codec::encode(std::span<const float> values, Bytes& out, uint32_t sequence) const {
  const size_t begin = out.size();
  const Bytes first = header(values.size(), sequence);
  out.insert(out.end(), first.begin(), first.end());
  out.resize(begin + max_encoded_bytes(values.size()));
  const auto [bytes, first_bad] =
      encode_body(values, sequence, std::span(out).subspan(begin + kHeaderBytes));
  if (first_bad != kAllFinite) {
    out.resize(begin);
    throw InputError(
        fmt::format("cannot encode as {}: value {} is {}", name(), first_bad, values[first_bad]));
  }
  out.resize(begin + kHeaderBytes + bytes);
}

void Codec::decode(std::span<const std::byte> bytes, std::span<float> values,
                   uint32_t sequence) const {
  ByteReader reader(bytes);
  const auto magic = reader.get<uint16_t>();
  const auto got_kind = reader.get<uint8_t>();
  const auto got_version = reader.get<uint8_t>();
  const auto count = reader.get<uint32_t>();
  const auto got_sequence = reader.get<uint32_t>();
  const auto got_name = reader.get<uint32_t>();
  if (magic != kMagic) throw InputError("not an encoded part: wrong magic number");
  if (got_kind != kind() || got_version != version()) {
    throw InputError(fmt::format("encoded with codec kind {} version {}, but {} is {} version {}",
                                 got_kind, got_version, name(), kind(), version()));
  }
  if (got_name != name_hash(name())) {
    throw InputError(fmt::format("encoded with other settings than those of {}", name()));
  }
  if (count != values.size()) {
    throw InputError(fmt::format("{} values encoded, {} expected", count, values.size()));
  }
  if (got_sequence != sequence) {
    throw InputError(fmt::format("encoded for sequence {}, {} expected", got_sequence, sequence));
  }
  const size_t bad = decode_body(reader.get_bytes(reader.remaining()), sequence, values);
  if (bad != kAllFinite) throw InputError(fmt::format("value {} is {}", bad, values[bad]));
}

void Codec::require_size(std::span<const std::byte> body, size_t expected, size_t count) const {
  if (body.size() == expected) return;
  throw InputError(fmt::format("{} bytes of {} for {} values, {} expected", body.size(), name(),
                               count, expected));
}

}  // namespace atl::codec
