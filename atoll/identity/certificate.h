#pragma once
// What certificates say, read strictly: they come from strangers. Who may trust a certificate is
// another question, which verified_facts() answers. Pure, thread-safe.
#include <string>
#include <string_view>

#include "atoll/base/result.h"
#include "atoll/identity/peer.h"
#include "atoll/identity/wall_time.h"

struct x509_st;  // OpenSSL's X509.

namespace atl::identity {

struct CertificateFacts {
  PeerId peer;
  std::string serial;  // Hexadecimal digits in lower case, two for each byte.
  WallTime not_before;
  WallTime not_after;
  std::string key_hash;  // SHA-256 of the DER public key, in hexadecimal digits.

  bool operator==(const CertificateFacts&) const = default;
};

/// Of a member's certificate: one with one alternative name, which is a peer's URI. Nothing is
/// verified: see verified_facts().
Result<CertificateFacts> facts_of(std::string_view pem);
Result<CertificateFacts> facts_of(const x509_st* certificate);

/// The peer that a member's certificate names.
Result<PeerId> peer_of(const x509_st* leaf);

/// The name of a run that nobody can forge: SHA-256 of the authority's DER public key, in
/// hexadecimal digits. Where `pem` is a certificate of an authority.
Result<std::string> fingerprint_of(std::string_view authority_pem);

/// The facts of a certificate that this authority signed for a member of its own run, and that is
/// valid at `now`.
Result<CertificateFacts> verified_facts(std::string_view pem, std::string_view authority_pem,
                                        WallTime now);

}  // namespace atl::identity
