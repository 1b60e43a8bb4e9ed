#include "atoll/kv/exact_coder.h"

#include <vector>

#include "atoll/base/check.h"
#include "atoll/base/clones.h"
#include "atoll/kv/tables.h"

namespace atl::kv {
namespace {

/// A bfloat16 turned by one bit: its exponent is the upper byte, mantissa and sign are the lower.
ATOLL_CLONES void split(const uint16_t* kv, size_t count, int16_t* exponents, uint8_t* rests) {
  for (size_t i = 0; i < count; ++i) {
    const auto turned = static_cast<uint16_t>(kv[i] << 1 | kv[i] >> 15);
    exponents[i] = static_cast<int16_t>(turned >> 8);
    rests[i] = static_cast<uint8_t>(turned);
  }
}

ATOLL_CLONES void join(const int16_t* exponents, const uint8_t* rests, size_t count, uint16_t* kv) {
  for (size_t i = 0; i < count; ++i) {
    const auto turned = static_cast<uint16_t>(exponents[i] << 8 | rests[i]);
    kv[i] = static_cast<uint16_t>(turned >> 1 | turned << 15);
  }
}

}  // namespace

int16_t exponent_of(uint16_t bf16) { return static_cast<int16_t>(bf16 >> 7 & 0xFF); }

void encode_exact(std::span<const uint16_t> kv_PCT, size_t num_planes, size_t num_channels,
                  std::span<const ValueTable> tables_PC, Bytes& out) {
  const size_t num_all = num_planes * num_channels;
  ATOLL_CHECK(num_all > 0 && kv_PCT.size() % num_all == 0);
  std::vector<int16_t> exponents_PCT(kv_PCT.size());
  std::vector<uint8_t> rests_PCT(kv_PCT.size());
  split(kv_PCT.data(), kv_PCT.size(), exponents_PCT.data(), rests_PCT.data());
  encode_planes(exponents_PCT, num_planes, num_channels, tables_PC, out);
  const auto rests = std::as_bytes(std::span(rests_PCT));
  out.insert(out.end(), rests.begin(), rests.end());
}

void decode_exact(ByteReader& in, size_t num_planes, size_t num_channels,
                  std::span<const ValueTable> tables_PC, std::span<uint16_t> kv_PCT) {
  const size_t num_all = num_planes * num_channels;
  ATOLL_CHECK(num_all > 0 && kv_PCT.size() % num_all == 0);
  std::vector<int16_t> exponents_PCT(kv_PCT.size());
  decode_planes(in, num_planes, num_channels, tables_PC, exponents_PCT);
  const auto rests = in.get_bytes(kv_PCT.size());
  join(exponents_PCT.data(), reinterpret_cast<const uint8_t*>(rests.data()), kv_PCT.size(),
       kv_PCT.data());
}

}  // namespace atl::kv
