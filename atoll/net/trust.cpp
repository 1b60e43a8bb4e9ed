#include "atoll/net/trust.h"

#include <openssl/ssl.h>

#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/net/tls_context.h"
#include "atoll/net/tls_stream.h"

namespace atl::net {
namespace {

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

/// What callers name in the clear: part of the fingerprint, as a label of a host has 63 letters.
std::string host_of(const std::string& run) { return run.substr(0, 32) + ".atoll.internal"; }

int choose_context(SSL* ssl, int* /*alert*/, void* /*unused*/) {
  choose_run(ssl);
  return SSL_TLSEXT_ERR_NOACK;
}

TlsContext new_context() {
  TlsContext context = new_tls_context();
  SSL_CTX_set_read_ahead(context.get(), 1);
  SSL_CTX_set_default_read_buffer_len(context.get(), kReadAheadBytes);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  SSL_CTX_set_tlsext_servername_callback(context.get(), choose_context);
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
  believe_fingerprint(trust->context_.get(), trust->fingerprint_);
  return trust;
}

Trust::Context Trust::make_context(const identity::Credentials& credentials) const {
  Context context = new_context();
  show(context.get(), credentials);
  believe(context.get(), credentials.authority_pem);
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

std::string Trust::run() const {
  const MutexLock lock(mutex_);
  return self_ ? self_->run : fingerprint_;
}

std::unique_ptr<ByteStream> Trust::calling_stream(std::unique_ptr<ByteStream> ground) const {
  const MutexLock lock(mutex_);
  return make_tls_stream_to(host_of(self_ ? self_->run : fingerprint_), std::move(ground), context_,
                            self_ ? TlsEnd::kCalling : TlsEnd::kJoining,
                            [this](const auto& facts) { return objection(facts); });
}

std::unique_ptr<ByteStream> Trust::called_stream(
    std::unique_ptr<ByteStream> ground, bool takes_joins,
    std::span<const std::shared_ptr<Trust>> more) const {
  std::vector<NamedRun> runs;
  for (const auto& other : more) {
    const std::string run = other->run();
    const MutexLock lock(other->mutex_);
    runs.push_back({.host = host_of(run), .run = run, .context = other->context_});
  }
  const MutexLock lock(mutex_);
  return make_tls_stream(std::move(ground), context_,
                         takes_joins ? TlsEnd::kCalledToJoin : TlsEnd::kCalled, nullptr,
                         std::move(runs));
}

}  // namespace atl::net
