#pragma once
// Lossy levels of a profile: most tokens in them, and to the bit those at the ends of a text, which
// all others attend to or which the next one follows on, and those that the level has no numbers
// for (not finite, or far beyond all that was seen).
//
// Shapes: P = planes of the head's layers, C = channels, T = tokens.
#include <cstdint>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/kv/blob_head.h"
#include "atoll/kv/profile.h"
#include "atoll/kv/turns.h"

namespace atl::kv {

/// What lossy levels need besides a blob.
struct Lossy {
  const Profile& profile;
  uint64_t profile_id;  // See profile_id().
  const Turns& turns;   // Of the blob's tokens.
};

/// So many tokens of the blob stay exact: the text's first and last ones, where it has them.
struct ExactEnds {
  uint32_t first = 4;
  uint32_t last = 16;
};

/// Appends them to `out`; the bits of bfloat16s. Throws InputError where the profile is of another
/// model or lacks the level.
void encode_lossy(const BlobHead& head, std::span<const uint16_t> kv_PCT, const Lossy& lossy,
                  ExactEnds ends, Bytes& out);

/// Throws InputError where `in` is no such encoding.
void decode_lossy(ByteReader& in, const BlobHead& head, const Lossy& lossy,
                  std::span<uint16_t> kv_PCT);

}  // namespace atl::kv
