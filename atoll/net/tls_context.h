#pragma once
// OpenSSL's settings of all our connections: TLS 1.3 alone, no session that is resumed. Private to
// atoll/net.
#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "atoll/identity/member_files.h"

namespace atl::net {

using TlsContext = std::shared_ptr<SSL_CTX>;

/// For either end; nobody is believed yet, and nothing is shown.
TlsContext new_tls_context();

/// Shows that certificate, with its authority's. Throws InputError where they do not fit together.
void show(SSL_CTX* context, const identity::Credentials& credentials);

/// Believes whom that authority signs for. Throws InputError where it is none.
void believe(SSL_CTX* context, const std::string& authority_pem);

/// Believes whom the authority with that fingerprint signs for: the other end sends the authority's
/// certificate with its own. `fingerprint` must outlive the context.
void believe_fingerprint(SSL_CTX* context, const std::string& fingerprint);

}  // namespace atl::net
