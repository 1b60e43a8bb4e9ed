#pragma once
// Who is no member any more, though a certificate of theirs is still valid. The authority signs the
// list, so that it can go from hand to hand; its number rises, so that an old one is known as such.
// Pure, thread-safe.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/base/bytes.h"
#include "atoll/base/result.h"
#include "atoll/identity/certificate.h"
#include "atoll/identity/key.h"

namespace atl::identity {

inline constexpr size_t kMaxRevocations = 4096;
/// Far beyond what so many entries take.
inline constexpr size_t kMaxRevocationBytes = size_t{1} << 20;

struct Revocation {
  enum class Kind : uint8_t { kSerial, kPeer };

  Kind kind = Kind::kPeer;
  std::string subject;  // A serial number as facts_of() has it, or a member's name.
  WallTime when;        // Of a peer: its certificates that were issued up to then are revoked.

  bool operator==(const Revocation&) const = default;
};

struct RevocationList {
  std::string run;
  uint64_t number = 0;
  std::vector<Revocation> entries;  // By kind and subject, each once.

  bool is_revoked(const CertificateFacts& facts) const;
  /// One more; of one subject the later time stays. Throws InputError where the list is full or the
  /// subject is none.
  void add(Revocation revocation);
  /// Drops those that no certificate can be alive for that was issued before them.
  void forget_before(WallTime time);

  bool operator==(const RevocationList&) const = default;
};

/// The list's one encoding, and the authority's signature over it.
Bytes sign(const RevocationList& list, const Key& authority);

/// The list that this authority signed for its own run.
Result<RevocationList> verify(std::span<const std::byte> signed_list,
                              std::string_view authority_pem);

/// The list without its signature; strict. What verify() reads, for tests and tools.
Bytes encode(const RevocationList& list);
Result<RevocationList> decode_revocation_list(std::span<const std::byte> bytes);

}  // namespace atl::identity
