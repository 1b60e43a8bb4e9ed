#include "atoll/net/trust.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/identity/openssl.h"
#include "atoll/net/tls_stream.h"

namespace atl::net {
namespace {

/// OpenSSL's of TLS 1.3, the quickest first where the processor knows AES.
constexpr const char* kCipherSuites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
/// What is read at once: several records, with one question to the system.
constexpr size_t kReadAheadBytes = size_t{128} << 10;

/// Takes the protocol that the caller names. Only who asks for the join needs no certificate; a
/// caller that names none gets as far as being asked for one.
int choose_protocol(SSL* ssl, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned offered_size, void* /*unused*/) {
  for (const std::string_view known : {kLinkProtocol, kJoinProtocol}) {
    for (unsigned at = 0; at < offered_size && at + 1 + offered[at] <= offered_size;
         at += 1 + offered[at]) {
      const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), offered[at]);
      if (name != known) continue;
      *chosen = offered + at + 1;
      *chosen_size = offered[at];
      if (name == kJoinProtocol) {
        if (!takes_joins(ssl)) return SSL_TLSEXT_ERR_ALERT_FATAL;
        SSL_set_verify(ssl, SSL_VERIFY_PEER, nullptr);  // Who has a certificate may show it.
      }
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/// A stranger believes the authority whose fingerprint its invite has; the server sends that
/// authority's certificate with its own.
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

std::shared_ptr<SSL_CTX> new_context() {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_method()), SSL_CTX_free);
  ATOLL_CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  ATOLL_CHECK(SSL_CTX_set_ciphersuites(context.get(), kCipherSuites) == 1);
  // A resumed session would not show its certificate again, which may have been revoked.
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  return context;
}

}  // namespace

Trust::Trust() = default;
Trust::~Trust() = default;

Trust::Trust(const identity::Credentials& credentials) { renew(credentials); }

std::unique_ptr<Trust> Trust::stranger(const std::string& fingerprint) {
  std::unique_ptr<Trust> trust(new Trust);
  trust->fingerprint_ = fingerprint;
  const MutexLock lock(trust->mutex_);
  trust->context_ = new_context();
  SSL_CTX_set_verify(trust->context_.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_cert_verify_callback(trust->context_.get(), verify_by_fingerprint,
                                   &trust->fingerprint_);
  return trust;
}

Trust::Context Trust::make_context(const identity::Credentials& credentials) const {
  const identity::QuietErrors quiet;
  Context context = new_context();
  const auto leaf = identity::certificate_in(credentials.certificate_pem);
  const auto authority = identity::certificate_in(credentials.authority_pem);
  const identity::OwnedBio key_reader = identity::reader_of(credentials.key_pem);
  const identity::OwnedKey key(
      PEM_read_bio_PrivateKey(key_reader.get(), nullptr, identity::no_passphrase, nullptr));
  if (!leaf || !authority || !key || SSL_CTX_use_certificate(context.get(), leaf.get()) != 1 ||
      SSL_CTX_use_PrivateKey(context.get(), key.get()) != 1 ||
      SSL_CTX_add1_chain_cert(context.get(), authority.get()) != 1 ||
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get()) != 1) {
    throw InputError("this member's certificate, its key and its authority do not fit together");
  }
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return context;
}

void Trust::renew(const identity::Credentials& credentials) {
  Context context = make_context(credentials);
  const auto facts = identity::facts_of(credentials.certificate_pem);
  if (!facts) throw InputError(facts.error().message);
  const MutexLock lock(mutex_);
  context_ = std::move(context);
  self_ = facts->peer;
}

std::string Trust::objection(const identity::CertificateFacts& facts) const {
  const MutexLock lock(mutex_);
  if (!self_) {
    return facts.peer.run == fingerprint_ && facts.peer.role == identity::Role::kCoordinator
               ? ""
               : "it is not the run's coordinator";
  }
  if (facts.peer.run != self_->run) return "that certificate is of another run";
  return revoked_.is_revoked(facts) ? "that member was revoked" : "";
}

void Trust::revoke(identity::RevocationList list) {
  {
    const MutexLock lock(mutex_);
    if (list.number <= revoked_.number) return;
    revoked_ = std::move(list);
  }
  const MutexLock lock(callbacks_mutex_);
  for (const auto& [number, callback] : callbacks_) callback();
}

int Trust::on_revocation(std::function<void()> callback) {
  const MutexLock lock(callbacks_mutex_);
  callbacks_.emplace(++last_callback_, std::move(callback));
  return last_callback_;
}

void Trust::forget(int callback) {
  const MutexLock lock(callbacks_mutex_);
  callbacks_.erase(callback);
}

std::unique_ptr<ByteStream> Trust::calling_stream(Descriptor socket) const {
  const MutexLock lock(mutex_);
  return make_tls_stream(std::move(socket), context_, self_ ? TlsEnd::kCalling : TlsEnd::kJoining,
                         [this](const auto& facts) { return objection(facts); });
}

std::unique_ptr<ByteStream> Trust::called_stream(Descriptor socket, bool takes_joins) const {
  const MutexLock lock(mutex_);
  return make_tls_stream(std::move(socket), context_,
                         takes_joins ? TlsEnd::kCalledToJoin : TlsEnd::kCalled, nullptr);
}

}  // namespace atl::net
