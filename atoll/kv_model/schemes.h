#pragma once
// Ways to make keys and values small, as a measurement compares them.
//
// Shapes: P = planes, C = channels, T = tokens.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/kv/blob_head.h"
#include "atoll/kv/profile.h"
#include "atoll/kv/turns.h"

namespace atl::kv_model {

class Scheme {
 public:
  virtual ~Scheme() = default;
  virtual std::string name() const = 0;
  /// Bits of bfloat16s. `head` says what they are of; its level is the scheme's to choose.
  virtual Bytes encode(const kv::BlobHead& head, std::span<const uint16_t> kv_PCT,
                       const kv::Turns& turns) const = 0;
  virtual std::vector<uint16_t> decode(std::span<const std::byte> bytes, const kv::BlobHead& head,
                                       const kv::Turns& turns) const = 0;
};

/// Level 0, the same rounded to 8 and to 4 bits with a scale for each token of a plane, and
/// CacheGen with the bins that are published, whose tables are in the blob.
std::vector<std::unique_ptr<Scheme>> schemes_without_profile();

/// All levels of a profile, which outlives them.
std::vector<std::unique_ptr<Scheme>> schemes_of(const kv::Profile& profile, uint64_t id);

}  // namespace atl::kv_model
