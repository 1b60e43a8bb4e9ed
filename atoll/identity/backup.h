#pragma once
// A secret that can lie on a disk of somebody else: encrypted with a key that scrypt derives from a
// passphrase (AES-256-GCM). Thread-safe; each call takes half a second and 128 MiB, which is the
// point: so does each guess.
#include <cstddef>
#include <string>
#include <string_view>

namespace atl::identity {

inline constexpr size_t kMinPassphraseBytes = 8;

/// Throws UsageError where the passphrase is too short.
std::string encrypted(std::string_view secret, std::string_view passphrase);

/// Throws InputError. A wrong passphrase and a damaged file are one and the same.
std::string decrypted(std::string_view backup, std::string_view passphrase);

}  // namespace atl::identity
