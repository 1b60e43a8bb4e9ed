// Any bytes, with a checksum that is theirs: read_profile() throws InputError or gives a profile,
// and so do blobs of its lossy levels.
#include <cstdint>
#include <cstdlib>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/kv/blob.h"
#include "atoll/testing/sample_profile.h"

namespace {

using namespace atl::kv;  // NOLINT(google-build-using-namespace)

constexpr uint32_t kTokens = 25;

atl::Bytes sealed(atl::Bytes bytes) {
  const uint64_t checksum = atl::xxh3(bytes.data(), bytes.size());
  const auto last = std::as_bytes(std::span(&checksum, 1));
  bytes.insert(bytes.end(), last.begin(), last.end());
  return bytes;
}

/// A whole one's bytes without the checksum, of which some are changed: a place and a change each.
atl::Bytes changed(const atl::Bytes& whole, const uint8_t* data, size_t size) {
  atl::Bytes bytes(whole.begin(), whole.end() - sizeof(uint64_t));
  for (size_t i = 0; i + 2 < size; i += 3) {
    bytes[(data[i] + 256U * data[i + 1]) % bytes.size()] ^= std::byte{data[i + 2]};
  }
  return sealed(std::move(bytes));
}

void check_profile(const atl::Bytes& bytes) {
  try {
    if (read_profile(bytes).num_channels == 0) std::abort();
  } catch (const atl::InputError&) {
    return;
  }
}

void check_blob(const atl::Bytes& bytes, const BlobHead& head, const Lossy& lossy) {
  try {
    if (decode_blob(bytes, head, lossy).size() != head.num_values()) std::abort();
  } catch (const atl::InputError&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  static const SampleProfile sample("m");
  check_profile(sealed({bytes.begin(), bytes.end()}));
  check_profile(changed(sample.bytes, data, size));
  static const Turns turns = turns_for(kTokens);
  const Lossy lossy{sample.profile, sample.id, turns};
  for (const Level level : {Level::kTransform, Level::kVectorwise}) {
    const BlobHead head{.level = level,
                        .model = "m",
                        .first_layer = 0,
                        .end_layer = kLayers,
                        .num_channels = kChannels,
                        .begin = 0,
                        .num_tokens = kTokens};
    const std::vector<uint16_t> values(head.num_values(), 0x3F80);
    check_blob(changed(encode_blob(head, values, lossy, {}), data, size), head, lossy);
  }
  return 0;
}
