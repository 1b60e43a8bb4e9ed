#pragma once
// One GET over HTTP, for small answers.
#include <cstddef>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/net/http_server.h"

namespace atl::net {

/// `address` is HOST:PORT. Fails when nothing answers, not by HTTP, or not within `patience` (to
/// connect, and between two pieces of the answer), and when the answer has more than `max_bytes`.
/// The process must ignore SIGPIPE.
Result<HttpReply> http_get(const std::string& address, const std::string& path, Duration patience,
                           size_t max_bytes);

}  // namespace atl::net
