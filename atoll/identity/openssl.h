#pragma once
// OpenSSL's objects with owners, and its ways to say no turned into null. For sources, not for
// headers. What OpenSSL notes about a failure is dropped with a QuietErrors: whoever reads a socket
// on the same thread would take it for that socket's.
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "atoll/base/check.h"

namespace atl::identity {

template <auto kFree>
struct FreeBy {
  void operator()(auto* object) const { kFree(object); }
};
template <typename T, auto kFree>
using Owned = std::unique_ptr<T, FreeBy<kFree>>;

using OwnedBio = Owned<BIO, BIO_free>;
using OwnedKey = Owned<EVP_PKEY, EVP_PKEY_free>;
using OwnedKeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using OwnedDigestContext = Owned<EVP_MD_CTX, EVP_MD_CTX_free>;
using OwnedCertificate = Owned<X509, X509_free>;
using OwnedRequest = Owned<X509_REQ, X509_REQ_free>;

class QuietErrors {
 public:
  QuietErrors() { ERR_set_mark(); }
  ~QuietErrors() { ERR_pop_to_mark(); }
  QuietErrors(const QuietErrors&) = delete;
  QuietErrors& operator=(const QuietErrors&) = delete;
};

inline const unsigned char* unsigned_bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
inline unsigned char* unsigned_bytes(std::string& text) {
  return reinterpret_cast<unsigned char*>(text.data());
}

/// OpenSSL's own asks at the terminal, for a file that a stranger marked as encrypted.
inline int no_passphrase(char* /*to*/, int /*size*/, int /*is_writing*/, void* /*data*/) {
  return -1;
}

/// Reads from `text`, which must outlive it.
inline OwnedBio reader_of(std::string_view text) {
  OwnedBio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  ATOLL_CHECK(bio != nullptr);
  return bio;
}

/// What `write(bio)` writes, as a PEM file has it. OpenSSL wipes the memory of its copy.
inline std::string written(const auto& write) {
  const OwnedBio bio(BIO_new(BIO_s_mem()));
  ATOLL_CHECK(bio != nullptr && write(bio.get()) == 1);
  char* begin = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(bio.get(), &begin));
  return {begin, size};
}

/// What `encode(to)` (an i2d function) writes where `to` leads; empty where it cannot.
inline std::string der_of(const auto& encode) {
  const int size = encode(nullptr);
  if (size <= 0) return {};
  std::string der(static_cast<size_t>(size), '\0');
  unsigned char* to = unsigned_bytes(der);
  ATOLL_CHECK(encode(&to) == size);
  return der;
}

/// Null unless `pem` begins with a certificate and is of a size that one has.
OwnedCertificate certificate_in(std::string_view pem);

/// The SubjectPublicKeyInfo, as it stands in a certificate or a request.
inline std::string public_der_of(const X509_PUBKEY* key) {
  return der_of([&](unsigned char** to) { return i2d_X509_PUBKEY(key, to); });
}

/// Whether this is a P-256 key in the one encoding that we take, so that a key has one hash.
bool is_plain_p256(std::string_view public_der);

}  // namespace atl::identity
