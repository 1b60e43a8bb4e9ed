#include "atoll/codec/block_codec.h"

#include <fmt/format.h>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::codec {

double BlockCodec::bits_per_value() const {
  return static_cast<double>(format_.code_bits) +
         8.0 * static_cast<double>(format_.scale_bytes) / static_cast<double>(format_.block_size);
}

size_t BlockCodec::max_body_bytes(size_t count) const {
  const auto bytes_of_block = [&](size_t size) {
    return size == 0 ? 0 : format_.scale_bytes + (size * format_.code_bits + 7) / 8;
  };
  return count / format_.block_size * bytes_of_block(format_.block_size) +
         bytes_of_block(count % format_.block_size);
}

Codec::Encoded BlockCodec::encode_body(std::span<const float> values, uint32_t /*sequence*/,
                                       std::span<std::byte> body) const {
  const size_t done = format_.encode(values.data(), values.size(), body.data());
  if (done * format_.block_size >= values.size()) return {body.size(), kAllFinite};
  const size_t first_bad = first_beyond(largest(), values);
  ATOLL_CHECK(first_bad != kAllFinite, "encode() refuses only what is beyond largest()");
  return {0, first_bad};
}

bool BlockCodec::is_padded(std::span<const std::byte> body, size_t count) const {
  const size_t per_byte = 8 / format_.code_bits;
  const size_t size = count % format_.block_size;  // Whole blocks have no room for more.
  const size_t height = (size + per_byte - 1) / per_byte;
  const auto codes = body.last(height);
  for (size_t i = size; i < height * per_byte; ++i) {
    const size_t shift = format_.code_bits * (i / height);
    const uint32_t mask = (1U << format_.code_bits) - 1;
    if ((static_cast<uint32_t>(codes[i % height]) >> shift & mask) != 0) return false;
  }
  return true;
}

size_t BlockCodec::decode_body(std::span<const std::byte> body, uint32_t /*sequence*/,
                               std::span<float> values) const {
  require_size(body, max_body_bytes(values.size()), values.size());
  if (!is_padded(body, values.size())) {
    throw InputError(
        fmt::format("{}: the last block holds codes for more values than there are", format_.name));
  }
  const size_t block = format_.decode(body.data(), values.size(), values.data());
  if (block * format_.block_size < values.size()) {
    throw InputError(fmt::format("{}: the scale of block {} is not one that is ever encoded",
                                 format_.name, block));
  }
  return kAllFinite;
}

}  // namespace atl::codec
