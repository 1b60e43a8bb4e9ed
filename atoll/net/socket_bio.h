#pragma once
// OpenSSL's way to a socket, but for one thing: OpenSSL's own raises SIGPIPE where the other side
// is gone. Private to atoll/net.
#include <openssl/bio.h>

namespace atl::net {

/// The socket stays the caller's.
BIO* new_socket_bio(int socket);

}  // namespace atl::net
