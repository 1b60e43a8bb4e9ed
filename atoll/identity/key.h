#pragma once
// A member's or an authority's key: ECDSA on P-256, which every TLS library has. A key proves
// itself by signing a request (PKCS#10), and an authority signs more than certificates with its
// own. Immutable, thread-safe; copies share the key.
#include <memory>
#include <string>
#include <string_view>

#include "atoll/base/result.h"

struct evp_pkey_st;

namespace atl::identity {

inline constexpr size_t kMaxPemBytes = 16384;

class Key {
 public:
  static Key generate();
  /// Throws InputError where it is no unencrypted P-256 key; `where` begins the message.
  static Key from_pem(std::string_view pem, std::string_view where);

  /// PKCS#8, unencrypted: to be wiped after use (wipe.h).
  std::string pem() const;
  /// SubjectPublicKeyInfo in DER.
  std::string public_der() const;
  /// A PEM request for a certificate, signed, with no name: the authority says who somebody is.
  std::string request() const;
  /// ECDSA with SHA-256 over `domain`, a zero byte and `message`: what is signed for one purpose is
  /// of no use for another.
  std::string sign(std::string_view domain, std::string_view message) const;

  evp_pkey_st* get() const { return key_.get(); }

 private:
  explicit Key(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)) {}

  std::shared_ptr<evp_pkey_st> key_;
};

/// The public key (SubjectPublicKeyInfo in DER) that a PEM request is for, if the request shows
/// that who made it has the private one.
Result<std::string> public_key_in(std::string_view request_pem);

/// Whether the key of this certificate signed `message`, by Key::sign().
bool is_signed_by(std::string_view certificate_pem, std::string_view domain,
                  std::string_view message, std::string_view signature);

}  // namespace atl::identity
