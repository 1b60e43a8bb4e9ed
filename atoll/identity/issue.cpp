#include "atoll/identity/issue.h"

#include <arpa/inet.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "atoll/identity/openssl.h"

namespace atl::identity {
namespace {

using OwnedNumber = Owned<BIGNUM, BN_free>;
using OwnedExtension = Owned<X509_EXTENSION, X509_EXTENSION_free>;

/// 127 random bits below a one: never negative, never short, unique without a book.
void set_serial(X509* certificate) {
  std::array<unsigned char, 16> bytes;
  ATOLL_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x3f) | 0x40);
  const OwnedNumber number(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  ATOLL_CHECK(number != nullptr &&
              BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr);
}

/// For people who look at a certificate; programs read the alternative name alone. The
/// organisations keep a member with the run's name from looking as if it had signed itself. Some
/// web clients take a common name ("CN") for a host's where no alternative name is one, and a
/// member chooses its name: so a member's stands in another field.
void set_subject(X509* certificate, std::string_view organisation, const char* name_field,
                 std::string_view name) {
  X509_NAME* const subject = X509_get_subject_name(certificate);
  const auto add = [&](const char* field, std::string_view text) {
    ATOLL_CHECK(X509_NAME_add_entry_by_txt(subject, field, MBSTRING_ASC, unsigned_bytes(text),
                                           static_cast<int>(text.size()), -1, 0) == 1);
  };
  add("O", organisation);
  add(name_field, name);
}

void set_times(X509* certificate, WallTime begin, WallTime end) {
  const auto set = [](ASN1_TIME* to, WallTime time) {
    ATOLL_CHECK(ASN1_TIME_set(to, time.time_since_epoch().count()) != nullptr);
  };
  set(X509_getm_notBefore(certificate), begin);
  set(X509_getm_notAfter(certificate), end);
}

void add_extension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509V3_set_ctx_nodb(&context);
  const OwnedExtension extension(X509V3_EXT_nconf_nid(nullptr, &context, id, value.c_str()));
  ATOLL_CHECK(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1);
}

/// Signed and as PEM.
std::string finished(X509* certificate, const Key& authority) {
  ATOLL_CHECK(X509_sign(certificate, authority.get(), EVP_sha256()) > 0);
  return written([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

OwnedCertificate new_certificate() {
  OwnedCertificate certificate(X509_new());
  ATOLL_CHECK(certificate != nullptr && X509_set_version(certificate.get(), X509_VERSION_3) == 1);
  set_serial(certificate.get());
  return certificate;
}

/// What all have that an authority signs for others. The key must be there.
void complete_leaf(X509* certificate, X509* issuer, const char* usage,
                   std::chrono::seconds validity, WallTime now) {
  set_times(certificate, now - kBackdated, now + validity);
  if (ASN1_TIME_compare(X509_get0_notAfter(certificate), X509_get0_notAfter(issuer)) > 0) {
    ATOLL_CHECK(X509_set1_notAfter(certificate, X509_get0_notAfter(issuer)) == 1);
  }
  ATOLL_CHECK(X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1);
  add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate, issuer, NID_key_usage, "critical,digitalSignature");
  add_extension(certificate, issuer, NID_ext_key_usage, usage);
  add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
  add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always");
}

bool is_ip_address(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace

std::string authority_certificate(const Key& key, std::string_view run_name, WallTime now) {
  const OwnedCertificate owned = new_certificate();
  X509* const certificate = owned.get();
  set_times(certificate, now - kBackdated, now + kAuthorityValidity);
  set_subject(certificate, "Atoll authority", "CN", run_name);
  ATOLL_CHECK(X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) == 1 &&
              X509_set_pubkey(certificate, key.get()) == 1);
  add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  add_extension(certificate, certificate, NID_subject_key_identifier, "hash");
  return finished(certificate, key);
}

std::string member_certificate(const Key& authority, std::string_view authority_pem,
                               std::string_view request_pem, const PeerId& peer,
                               std::chrono::seconds validity, WallTime now) {
  const OwnedCertificate issuer = certificate_in(authority_pem);
  const OwnedRequest request(
      PEM_read_bio_X509_REQ(reader_of(request_pem).get(), nullptr, no_passphrase, nullptr));
  const OwnedCertificate owned = new_certificate();
  X509* const certificate = owned.get();
  ATOLL_CHECK(issuer != nullptr && request != nullptr);
  set_subject(certificate, "Atoll member", "OU", peer.name);
  ATOLL_CHECK(X509_set_pubkey(certificate, X509_REQ_get0_pubkey(request.get())) == 1);
  complete_leaf(certificate, issuer.get(), "serverAuth,clientAuth", validity, now);
  // A name is letters, digits, '-', '_' and '.': nothing in it means anything to OpenSSL's parser.
  add_extension(certificate, issuer.get(), NID_subject_alt_name, "URI:" + uri_of(peer));
  return finished(certificate, authority);
}

bool is_web_host(std::string_view host) {
  if (is_ip_address(std::string(host))) return true;
  constexpr size_t kMaxHostBytes = 253;  // RFC 1035.
  // Nothing in it means anything to OpenSSL's parser either.
  return !host.empty() && host.size() <= kMaxHostBytes && host.front() != '.' &&
         host.find("..") == std::string_view::npos && std::ranges::all_of(host, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '.';
         });
}

std::string web_certificate(const Key& authority, std::string_view authority_pem, const Key& server,
                            const std::vector<std::string>& hosts, std::chrono::seconds validity,
                            WallTime now) {
  const OwnedCertificate issuer = certificate_in(authority_pem);
  const OwnedCertificate owned = new_certificate();
  X509* const certificate = owned.get();
  ATOLL_CHECK(issuer != nullptr && !hosts.empty());
  std::string names;
  for (const std::string& host : hosts) {
    ATOLL_CHECK(is_web_host(host));
    names += (names.empty() ? "" : ",") + std::string(is_ip_address(host) ? "IP:" : "DNS:") + host;
  }
  set_subject(certificate, "Atoll web server", "OU", "for readers");
  ATOLL_CHECK(X509_set_pubkey(certificate, server.get()) == 1);
  complete_leaf(certificate, issuer.get(), "serverAuth", validity, now);
  add_extension(certificate, issuer.get(), NID_subject_alt_name, names);
  return finished(certificate, authority);
}

}  // namespace atl::identity
