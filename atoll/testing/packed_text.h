#pragma once
// Text as gzip and zstd, for tests.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/data/byte_source.h"

namespace atl::data {

inline std::string gzipped(std::string_view text) {
  z_stream stream{};
  ATOLL_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ATOLL_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(packed.size() - stream.avail_out);
  deflateEnd(&stream);
  return packed;
}

/// One frame; a window of 2^window_log bytes if that is not 0.
inline std::string zstd_packed(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string packed(ZSTD_compressBound(text.size()) + 64, '\0');
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  if (window_log > 0) {  // As a stream: a frame that tells its size has no use for a window.
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    while (in.pos < in.size) ZSTD_compressStream2(context, &out, &in, ZSTD_e_continue);
  }
  while (ZSTD_compressStream2(context, &out, &in, ZSTD_e_end) != 0) {
  }
  ZSTD_freeCCtx(context);
  packed.resize(out.pos);
  return packed;
}

/// A source of these bytes, a few at a time.
inline ByteSource source_of(std::string bytes, const std::string& name, size_t at_once = 1 << 20) {
  return {[bytes = std::move(bytes), at_once, at = size_t{0}](std::span<std::byte> out) mutable {
            const size_t size = std::min({out.size(), bytes.size() - at, at_once});
            std::memcpy(out.data(), bytes.data() + at, size);
            at += size;
            return size;
          },
          name};
}

/// All that a source gives.
inline std::string all_of(ByteSource source, size_t at_once = 1 << 16) {
  std::string text;
  std::string piece(at_once, '\0');
  while (const size_t size = source.read(piece)) text.append(piece, 0, size);
  return text;
}

}  // namespace atl::data
