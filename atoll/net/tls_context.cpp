#include "atoll/net/tls_context.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/identity/openssl.h"

namespace atl::net {
namespace {

/// OpenSSL's of TLS 1.3, the quickest first where the processor knows AES.
constexpr const char* kCipherSuites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

int verify_by_fingerprint(X509_STORE_CTX* context, void* fingerprint) {
  STACK_OF(X509)* const sent = X509_STORE_CTX_get0_untrusted(context);
  const auto& wanted = *static_cast<const std::string*>(fingerprint);
  for (int i = 0; i < sk_X509_num(sent); ++i) {
    X509* const candidate = sk_X509_value(sent, i);
    const std::string pem =
        identity::written([candidate](BIO* bio) { return PEM_write_bio_X509(bio, candidate); });
    const auto found = identity::fingerprint_of(pem);
    if (!found || *found != wanted) continue;
    STACK_OF(X509)* const trusted = sk_X509_new_null();
    sk_X509_push(trusted, candidate);
    X509_STORE_CTX_set0_trusted_stack(context, trusted);
    const int result = X509_verify_cert(context);
    sk_X509_free(trusted);
    return result;
  }
  X509_STORE_CTX_set_error(context, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT);
  return 0;
}

}  // namespace

TlsContext new_tls_context() {
  TlsContext context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  ATOLL_CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  ATOLL_CHECK(SSL_CTX_set_ciphersuites(context.get(), kCipherSuites) == 1);
  // A resumed session would not show its certificate again, which may have been revoked.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

void show(SSL_CTX* context, const identity::Credentials& credentials) {
  const identity::QuietErrors quiet;
  const auto leaf = identity::certificate_in(credentials.certificate_pem);
  const auto authority = identity::certificate_in(credentials.authority_pem);
  const identity::OwnedBio key_reader = identity::reader_of(credentials.key_pem);
  const identity::OwnedKey key(
      PEM_read_bio_PrivateKey(key_reader.get(), nullptr, identity::no_passphrase, nullptr));
  if (!leaf || !authority || !key || SSL_CTX_use_certificate(context, leaf.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      SSL_CTX_add1_chain_cert(context, authority.get()) != 1) {
    throw InputError("a certificate, its key and its authority do not fit together");
  }
}

void believe(SSL_CTX* context, const std::string& authority_pem) {
  const identity::QuietErrors quiet;
  const auto authority = identity::certificate_in(authority_pem);
  if (!authority || X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1) {
    throw InputError("no certificate of an authority in PEM");
  }
}

void believe_fingerprint(SSL_CTX* context, const std::string& fingerprint) {
  SSL_CTX_set_cert_verify_callback(context, verify_by_fingerprint,
                                   const_cast<std::string*>(&fingerprint));
}

}  // namespace atl::net
