#pragma once
// OpenSSL's way to what its bytes travel over: a socket in the clear, or another TLS stream, whose
// ends are not the same. Private to atoll/net.
#include <openssl/bio.h>

#include "atoll/net/byte_stream.h"

namespace atl::net {

/// What lies under TLS, and why it ended, where that is known.
struct Ground {
  std::unique_ptr<ByteStream> stream;
  std::string fault;
};

/// The ground stays the caller's and must outlive it.
BIO* new_stream_bio(Ground& ground);

}  // namespace atl::net
