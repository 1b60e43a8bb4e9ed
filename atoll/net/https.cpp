#include "atoll/net/https.h"

#include <fmt/format.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <string_view>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/identity/openssl.h"
#include "atoll/net/socket_address.h"
#include "atoll/net/tls_context.h"
#include "atoll/net/tls_stream.h"

namespace atl::net {
namespace {

/// Of all that a stranger shows: a member's certificate and its authority's have a tenth of that.
constexpr long kMaxShownBytes = 16 << 10;

/// Browsers offer newer versions of HTTP as well. Who offers none speaks what everybody does.
int choose_http(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* chosen_size,
                const unsigned char* offered, unsigned offered_size, void* /*unused*/) {
  for (unsigned at = 0; at < offered_size && at + 1 + offered[at] <= offered_size;
       at += 1 + offered[at]) {
    const std::string_view name(reinterpret_cast<const char*>(offered + at + 1), offered[at]);
    if (name != kHttpProtocol) continue;
    *chosen = offered + at + 1;
    *chosen_size = offered[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/// The server's certificate must name that host among its alternative names: other names in it were
/// chosen by whoever it is for.
void require_host(SSL_CTX* context, const Address& server) {
  X509_VERIFY_PARAM* const rules = SSL_CTX_get0_param(context);
  X509_VERIFY_PARAM_set_hostflags(
      rules, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const int set = numeric_address(server)
                      ? X509_VERIFY_PARAM_set1_ip_asc(rules, server.host.c_str())
                      : X509_VERIFY_PARAM_set1_host(rules, server.host.data(), server.host.size());
  if (set != 1) throw InputError("no certificate can name the host '" + server.host + "'");
}

void limit_strangers(SSL_CTX* context) {
  SSL_CTX_set_max_cert_list(context, kMaxShownBytes);
  // Else a read that a stranger feeds with new keys alone would go on past its deadline.
  SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
  SSL_CTX_set_alpn_select_cb(context, choose_http, nullptr);
}

}  // namespace

void HttpsHost::renew(const identity::Credentials& credentials) {
  TlsContext context = new_tls_context();
  show(context.get(), credentials);
  believe(context.get(), credentials.authority_pem);
  // A browser asks its user for a certificate only where it has one of that authority.
  const auto authority = identity::certificate_in(credentials.authority_pem);
  ATOLL_CHECK(SSL_CTX_add_client_CA(context.get(), authority.get()) == 1);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  limit_strangers(context.get());
  const MutexLock lock(mutex_);
  context_ = std::move(context);
}

std::shared_ptr<const HttpsHost> HttpsHost::of_files(const std::filesystem::path& certificate,
                                                     const std::filesystem::path& private_key) {
  const identity::QuietErrors quiet;
  TlsContext context = new_tls_context();
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1) {
    throw InputError(
        fmt::format("'{}' holds no certificate in PEM that can be used", certificate.string()));
  }
  if (SSL_CTX_use_PrivateKey_file(context.get(), private_key.c_str(), SSL_FILETYPE_PEM) != 1) {
    throw InputError(fmt::format("'{}' holds no private key in PEM of the certificate in '{}'",
                                 private_key.string(), certificate.string()));
  }
  limit_strangers(context.get());
  std::shared_ptr<HttpsHost> host(new HttpsHost);
  const MutexLock lock(host->mutex_);
  host->context_ = std::move(context);
  return host;
}

std::unique_ptr<ByteStream> HttpsHost::called_stream(Descriptor socket) const {
  const MutexLock lock(mutex_);
  return make_tls_stream(make_plain_stream(std::move(socket)), context_, TlsEnd::kCalled, nullptr);
}

std::unique_ptr<ByteStream> asking_stream(Descriptor socket, const Address& server,
                                          const HttpsIdentity& who) {
  TlsContext context = new_tls_context();
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  require_host(context.get(), server);
  if (who.authority_pem.empty()) {
    believe_fingerprint(context.get(), who.fingerprint);
  } else {
    believe(context.get(), who.authority_pem);
  }
  if (who.member) show(context.get(), *who.member);
  return make_tls_stream(make_plain_stream(std::move(socket)), std::move(context), TlsEnd::kReading,
                         nullptr);
}

}  // namespace atl::net
