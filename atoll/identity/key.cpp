#include "atoll/identity/key.h"

#include <fmt/format.h>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/identity/openssl.h"
#include "atoll/identity/wipe.h"

namespace atl::identity {
namespace {

// SEQUENCE { SEQUENCE { id-ecPublicKey, prime256v1 }, BIT STRING with 04 X Y }: the only encoding
// of a P-256 key that names its curve and is not compressed.
constexpr std::string_view kP256Head(
    "\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"
    "\x03\x42\x00\x04",
    27);
constexpr size_t kP256Bytes = 91;
constexpr size_t kMaxSignatureBytes = 72;  // Two numbers of 33 bytes, and what DER adds.

std::string with_domain(std::string_view domain, std::string_view message) {
  std::string text(domain);
  text += '\0';
  return text.append(message);
}

}  // namespace

bool is_plain_p256(std::string_view public_der) {
  return public_der.size() == kP256Bytes && public_der.starts_with(kP256Head);
}

Key Key::generate() {
  OwnedKey key(EVP_EC_gen("P-256"));
  ATOLL_CHECK(key != nullptr);
  return Key(std::move(key));
}

Key Key::from_pem(std::string_view pem, std::string_view where) {
  const QuietErrors quiet;
  OwnedKey key;
  if (pem.size() <= kMaxPemBytes) {
    key.reset(PEM_read_bio_PrivateKey(reader_of(pem).get(), nullptr, no_passphrase, nullptr));
  }
  Key found(std::move(key));
  if (found.key_ == nullptr || !is_plain_p256(found.public_der())) {
    throw InputError(fmt::format("{}: no unencrypted P-256 key in PEM", where));
  }
  return found;
}

std::string Key::pem() const {
  return written([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key_.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

std::string Key::public_der() const {
  return der_of([this](unsigned char** to) { return i2d_PUBKEY(key_.get(), to); });
}

std::string Key::request() const {
  const OwnedRequest request(X509_REQ_new());
  ATOLL_CHECK(request != nullptr && X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
              X509_REQ_set_pubkey(request.get(), key_.get()) == 1 &&
              X509_REQ_sign(request.get(), key_.get(), EVP_sha256()) > 0);
  return written([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()); });
}

std::string Key::sign(std::string_view domain, std::string_view message) const {
  const std::string text = with_domain(domain, message);
  const OwnedDigestContext context(EVP_MD_CTX_new());
  ATOLL_CHECK(context != nullptr &&
              EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key_.get()) == 1);
  std::string signature(kMaxSignatureBytes, '\0');
  size_t size = signature.size();
  ATOLL_CHECK(EVP_DigestSign(context.get(), unsigned_bytes(signature), &size, unsigned_bytes(text),
                             text.size()) == 1);
  signature.resize(size);
  return signature;
}

Result<std::string> public_key_in(std::string_view request_pem) {
  const QuietErrors quiet;
  OwnedRequest request;
  if (request_pem.size() <= kMaxPemBytes) {
    request.reset(
        PEM_read_bio_X509_REQ(reader_of(request_pem).get(), nullptr, no_passphrase, nullptr));
  }
  if (request == nullptr) return failure("no request for a certificate in PEM");
  std::string der = public_der_of(X509_REQ_get_X509_PUBKEY(request.get()));
  if (!is_plain_p256(der)) return failure("the request is for no P-256 key");
  EVP_PKEY* const key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || X509_REQ_verify(request.get(), key) != 1) {
    return failure("the request is not signed with its own key");
  }
  return der;
}

bool is_signed_by(std::string_view certificate_pem, std::string_view domain,
                  std::string_view message, std::string_view signature) {
  const QuietErrors quiet;
  const OwnedCertificate certificate = certificate_in(certificate_pem);
  if (certificate == nullptr || signature.size() > kMaxSignatureBytes) return false;
  EVP_PKEY* const key = X509_get0_pubkey(certificate.get());
  if (key == nullptr || !is_plain_p256(public_der_of(X509_get_X509_PUBKEY(certificate.get())))) {
    return false;
  }
  const std::string text = with_domain(domain, message);
  const OwnedDigestContext context(EVP_MD_CTX_new());
  ATOLL_CHECK(context != nullptr);
  return EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key) == 1 &&
         EVP_DigestVerify(context.get(), unsigned_bytes(signature), signature.size(),
                          unsigned_bytes(text), text.size()) == 1;
}

}  // namespace atl::identity
