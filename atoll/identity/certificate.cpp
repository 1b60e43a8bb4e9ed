#include "atoll/identity/certificate.h"

#include <fmt/format.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/identity/key.h"
#include "atoll/identity/openssl.h"

namespace atl::identity {
namespace {

constexpr size_t kMaxUriBytes = 256;
constexpr size_t kMaxSerialBytes = 20;  // RFC 5280.

using OwnedNames = Owned<GENERAL_NAMES, GENERAL_NAMES_free>;
using OwnedNumber = Owned<BIGNUM, BN_free>;
using OwnedStore = Owned<X509_STORE, X509_STORE_free>;
using OwnedStoreContext = Owned<X509_STORE_CTX, X509_STORE_CTX_free>;

/// In hexadecimal digits; empty where it is no key that we take.
std::string key_hash_of(const X509* certificate) {
  const std::string der = public_der_of(X509_get_X509_PUBKEY(certificate));
  return is_plain_p256(der) ? hex(sha256(as_byte_span(der))) : std::string();
}

std::optional<WallTime> time_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) return std::nullopt;
  return WallTime(std::chrono::seconds(::timegm(&parts)));
}

/// Empty where it is none that an authority may give.
std::string serial_of(const X509* certificate) {
  const OwnedNumber number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  if (number == nullptr || BN_is_negative(number.get()) != 0) return {};
  std::string bytes(static_cast<size_t>(BN_num_bytes(number.get())), '\0');
  if (bytes.empty() || bytes.size() > kMaxSerialBytes) return {};
  BN_bn2bin(number.get(), unsigned_bytes(bytes));
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

Result<std::string> uri_in(const X509* certificate) {
  // Null also where there are several such extensions.
  const OwnedNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  if (names == nullptr || sk_GENERAL_NAME_num(names.get()) != 1) {
    return failure("the certificate has not exactly one alternative name");
  }
  const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), 0);
  if (name->type != GEN_URI) return failure("the certificate's alternative name is no URI");
  const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
  const auto size = static_cast<size_t>(ASN1_STRING_length(uri));
  if (size > kMaxUriBytes) return failure("the certificate's URI is too long");
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)), size);
}

/// Why the chain of these two does not hold; null where it does.
const char* fault_of_chain(X509* leaf, X509* authority, WallTime now) {
  const OwnedStore store(X509_STORE_new());
  const OwnedStoreContext context(X509_STORE_CTX_new());
  ATOLL_CHECK(store != nullptr && context != nullptr);
  if (X509_STORE_add_cert(store.get(), authority) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), leaf, nullptr) != 1) {
    return "it cannot be verified";
  }
  X509_VERIFY_PARAM* const rules = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(rules, now.time_since_epoch().count());
  X509_VERIFY_PARAM_set_flags(rules, X509_V_FLAG_X509_STRICT);
  if (X509_verify_cert(context.get()) == 1) return nullptr;
  return X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get()));
}

/// Why it does not hold at that time; empty where it does.
std::string fault_of_time(const CertificateFacts& facts, WallTime now) {
  if (now < facts.not_before) {
    return fmt::format(
        "the certificate is not valid yet: this machine's clock says {}, the certificate is valid "
        "from {}: if the clock is wrong set it",
        text_of(now), text_of(facts.not_before));
  }
  if (now <= facts.not_after) return {};
  return fmt::format(
      "the certificate has expired: this machine's clock says {}, the certificate was valid until "
      "{}: if the clock is wrong set it, else ask for a new invite",
      text_of(now), text_of(facts.not_after));
}

}  // namespace

OwnedCertificate certificate_in(std::string_view pem) {
  const QuietErrors quiet;
  if (pem.size() > kMaxPemBytes || !pem.starts_with("-----BEGIN CERTIFICATE-----")) return nullptr;
  return OwnedCertificate(PEM_read_bio_X509(reader_of(pem).get(), nullptr, no_passphrase, nullptr));
}

Result<CertificateFacts> facts_of(const x509_st* certificate) {
  const QuietErrors quiet;
  if (certificate == nullptr) return failure("no certificate");
  // OpenSSL reads the extensions when it is first asked about them, and notes them in the object.
  if (X509_check_ca(const_cast<X509*>(certificate)) != 0) {
    return failure("the certificate is an authority's, not a member's");
  }
  const auto uri = uri_in(certificate);
  if (!uri) return failure(uri.error().message);
  auto peer = peer_in(*uri);
  if (!peer) return failure(peer.error().message);
  const auto not_before = time_of(X509_get0_notBefore(certificate));
  const auto not_after = time_of(X509_get0_notAfter(certificate));
  if (!not_before || !not_after) return failure("the certificate's times cannot be read");
  std::string serial = serial_of(certificate);
  if (serial.empty()) return failure("the certificate has no valid serial number");
  std::string key_hash = key_hash_of(certificate);
  if (key_hash.empty()) return failure("the certificate's key is no P-256 key");
  return CertificateFacts{.peer = *std::move(peer),
                          .serial = std::move(serial),
                          .not_before = *not_before,
                          .not_after = *not_after,
                          .key_hash = std::move(key_hash)};
}

Result<CertificateFacts> facts_of(std::string_view pem) {
  const OwnedCertificate certificate = certificate_in(pem);
  if (certificate == nullptr) return failure("no certificate in PEM");
  return facts_of(certificate.get());
}

Result<PeerId> peer_of(const x509_st* leaf) {
  auto facts = facts_of(leaf);
  if (!facts) return failure(std::move(facts.error().message));
  return std::move(facts->peer);
}

Result<std::string> fingerprint_of(std::string_view authority_pem) {
  const QuietErrors quiet;
  const OwnedCertificate certificate = certificate_in(authority_pem);
  if (certificate == nullptr) return failure("no certificate of an authority in PEM");
  if (X509_check_ca(certificate.get()) != 1) return failure("the certificate is no authority's");
  std::string hash = key_hash_of(certificate.get());
  if (hash.empty()) return failure("the authority's key is no P-256 key");
  return hash;
}

Result<CertificateFacts> verified_facts(std::string_view pem, std::string_view authority_pem,
                                        WallTime now) {
  const QuietErrors quiet;
  auto facts = facts_of(pem);
  if (!facts) return facts;
  const auto run = fingerprint_of(authority_pem);
  if (!run) return failure(run.error().message);
  if (facts->peer.run != *run) return failure("the certificate is of another run");
  // Before the chain, whose complaints about time name no time.
  if (std::string fault = fault_of_time(*facts, now); !fault.empty()) {
    return failure(std::move(fault));
  }
  const char* const fault =
      fault_of_chain(certificate_in(pem).get(), certificate_in(authority_pem).get(), now);
  if (fault != nullptr) return failure(fmt::format("the certificate does not hold: {}", fault));
  return facts;
}

}  // namespace atl::identity
