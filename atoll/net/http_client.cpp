#include "atoll/net/http_client.h"

#include <fmt/format.h>
#include <httplib.h>

#include "atoll/net/address.h"

namespace atl::net {

Result<HttpReply> http_get(const std::string& address, const std::string& path, Duration patience,
                           size_t max_bytes) {
  const auto where = parse_address(address);
  if (!where) return failure(where.error().message);
  httplib::Client client(where->host, where->port);
  client.set_connection_timeout(patience);
  client.set_read_timeout(patience);
  client.set_write_timeout(patience);
  std::string body;
  const auto result = client.Get(path, [&](const char* data, size_t size) {
    body.append(data, size);
    return body.size() <= max_bytes;
  });
  if (body.size() > max_bytes) {
    return failure(fmt::format("{} sent more than {} bytes", address, max_bytes));
  }
  switch (result.error()) {
    case httplib::Error::Success:
      return HttpReply{result->status, result->get_header_value("Content-Type"), std::move(body)};
    case httplib::Error::Connection:
      return failure(fmt::format("nothing listens on {}", address));
    case httplib::Error::ConnectionTimeout:
      return failure(fmt::format("{} did not answer within {:.0f} s", address, seconds(patience)));
    default:
      return failure(fmt::format("{} listens, but gives no answer by HTTP", address));
  }
}

}  // namespace atl::net
