#pragma once
// Bytes that others may keep, who can neither read nor change them: AES-256-GCM. And digests that
// only those can make who have a key: HMAC-SHA256.
#include <cstddef>
#include <span>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"

namespace atl {

/// A random nonce of 12 bytes, what is encrypted, a tag of 16 bytes. `about` is needed to open it,
/// and is not in it. At most 1 GiB; of one key at most 2^32.
Bytes sealed(std::span<const std::byte> plain, const Digest& key, std::span<const std::byte> about);

/// Throws InputError where it was sealed with another key or about something else, or was changed.
Bytes unsealed(std::span<const std::byte> sealed_bytes, const Digest& key,
               std::span<const std::byte> about);

Digest keyed_digest(const Digest& key, std::span<const std::byte> text);

/// From the system: a key that nobody can guess.
Digest random_key();

}  // namespace atl
