// Packed bytes from strangers: unpacked or refused with an InputError, the same however they
// arrive; what was packed comes back. Memory stays bounded, whatever a header promises.
#include <cstdint>
#include <optional>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/testing/packed_text.h"

namespace atl::data {
namespace {

constexpr size_t kMostUnpacked = 1 << 20;  // A few bytes may stand for gigabytes.

/// Nothing when they are refused.
std::optional<std::string> unpacked(const std::string& bytes, size_t at_once) {
  try {
    ByteSource source = source_of(bytes, "fuzz", at_once);
    std::string text;
    std::string piece(1 << 12, '\0');
    while (text.size() < kMostUnpacked) {
      const size_t size = source.read(piece);
      if (size == 0) return text;
      text.append(piece, 0, size);
    }
    return text.substr(0, kMostUnpacked);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

void try_bytes(const std::string& bytes) {
  ATOLL_CHECK(unpacked(bytes, bytes.size() + 1) == unpacked(bytes, 3));
}

}  // namespace
}  // namespace atl::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using atl::data::gzipped;
  using atl::data::unpacked;
  using atl::data::zstd_packed;
  const std::string text(reinterpret_cast<const char*>(data), size);
  atl::data::try_bytes(text);
  for (std::string packed : {gzipped(text) + gzipped("x"), zstd_packed(text) + zstd_packed("x")}) {
    ATOLL_CHECK(unpacked(packed, 7) == text + "x");
    if (size < 2) continue;
    packed[(data[0] * 256U + data[1]) % packed.size()] = text.back();
    atl::data::try_bytes(packed);
  }
  return 0;
}
