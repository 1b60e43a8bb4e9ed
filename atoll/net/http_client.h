#pragma once
// One GET over HTTP or HTTPS, for small answers.
#include <cstddef>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/net/http_server.h"
#include "atoll/net/https.h"

namespace atl::net {

/// `address` is HOST:PORT. Fails when nothing answers, not by HTTP, or not within `patience` (to
/// connect, and between two pieces of the answer), and when the answer has more than `max_bytes`.
/// The process must ignore SIGPIPE.
Result<HttpReply> http_get(const std::string& address, const std::string& path, Duration patience,
                           size_t max_bytes);

/// The same of a server that must prove to be the host in `address`, before it is asked anything.
/// All has to be done within `patience`, but that names are looked up first.
Result<HttpReply> https_get(const std::string& address, const std::string& path,
                            const HttpsIdentity& who, Duration patience, size_t max_bytes);

}  // namespace atl::net
