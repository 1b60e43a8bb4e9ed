// Any bytes, with a checksum that is theirs: decode_blob() throws InputError or returns values.
#include <cstdint>
#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/kv/blob.h"

namespace {

using atl::kv::BlobHead;

const BlobHead kHead{.model = "m",
                     .first_layer = 1,
                     .end_layer = 2,
                     .num_channels = 3,
                     .begin = 4,
                     .num_tokens = 20};

void check(atl::Bytes blob) {
  const uint64_t checksum = atl::xxh3(blob.data(), blob.size());
  const auto bytes = std::as_bytes(std::span(&checksum, 1));
  blob.insert(blob.end(), bytes.begin(), bytes.end());
  try {
    if (atl::kv::decode_blob(blob, kHead).size() != kHead.num_values()) std::abort();
  } catch (const atl::InputError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check({bytes.begin(), bytes.end()});
  // Behind the right head, and with some bytes of a whole blob changed.
  const std::vector<uint16_t> values(kHead.num_values(), 0x3F80);
  const atl::Bytes whole = atl::kv::encode_blob(kHead, values);
  constexpr size_t kHeadBytes = 45;  // With a model's name of one letter.
  atl::Bytes blob(whole.begin(), whole.begin() + kHeadBytes);
  blob.insert(blob.end(), bytes.begin(), bytes.end());
  check(blob);
  blob.assign(whole.begin(), whole.end() - sizeof(uint64_t));
  for (size_t i = 0; i + 1 < size; i += 2) {
    blob[(kHeadBytes + data[i]) % blob.size()] ^= std::byte{data[i + 1]};
  }
  check(blob);
  return 0;
}
