#include "atoll/codec/codec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/codec/plain_codecs.h"

namespace atl::codec {
namespace {

constexpr uint16_t kMagic = 0xc0de;

struct Entry {
  std::string_view name;
  std::unique_ptr<Codec> (*make)();
};
/// Sorted by name. A new codec is a new file and a line here.
constexpr Entry kCodecs[] = {
    {"bf16", make_bf16_codec},
    {"fp32", make_fp32_codec},
};

}  // namespace

void Codec::encode(std::span<const float> values, Bytes& out) const {
  ATOLL_CHECK(values.size() <= std::numeric_limits<uint32_t>::max(), "too many values to encode");
  const size_t begin = out.size();
  const Bytes header = ByteWriter()
                           .put(kMagic)
                           .put(kind())
                           .put(version())
                           .put(static_cast<uint32_t>(values.size()))
                           .take();
  out.insert(out.end(), header.begin(), header.end());
  out.resize(begin + encoded_bytes(values.size()));
  const size_t bad = encode_body(values, std::span(out).subspan(begin + kHeaderBytes));
  if (bad != kAllFinite) {
    out.resize(begin);
    throw InputError(fmt::format("cannot encode as {}: value {} is {}", name(), bad, values[bad]));
  }
}

void Codec::decode(std::span<const std::byte> bytes, std::span<float> values) const {
  ByteReader reader(bytes);
  const auto magic = reader.get<uint16_t>();
  const auto got_kind = reader.get<uint8_t>();
  const auto got_version = reader.get<uint8_t>();
  const auto count = reader.get<uint32_t>();
  if (magic != kMagic) throw InputError("not an encoded part: wrong magic number");
  if (got_kind != kind() || got_version != version()) {
    throw InputError(fmt::format("encoded with codec kind {} version {}, but {} is {} version {}",
                                 got_kind, got_version, name(), kind(), version()));
  }
  if (count != values.size()) {
    throw InputError(fmt::format("{} values encoded, {} expected", count, values.size()));
  }
  const auto body = reader.get_bytes(reader.remaining());
  if (body.size() != body_bytes(count)) {
    throw InputError(fmt::format("{} bytes of {} for {} values, {} expected", body.size(), name(),
                                 count, body_bytes(count)));
  }
  const size_t bad = decode_body(body, values);
  if (bad != kAllFinite) throw InputError(fmt::format("value {} is {}", bad, values[bad]));
}

std::unique_ptr<Codec> make_codec(std::string_view name) {
  for (const Entry& entry : kCodecs) {
    if (entry.name == name) return entry.make();
  }
  throw UsageError(fmt::format("unknown codec '{}': known are {}", name.substr(0, 100),
                               fmt::join(codec_names(), ", ")));
}

std::vector<std::string> codec_names() {
  std::vector<std::string> names;
  for (const Entry& entry : kCodecs) names.emplace_back(entry.name);
  return names;
}

}  // namespace atl::codec
