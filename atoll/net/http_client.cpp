#include "atoll/net/http_client.h"

#include <fmt/format.h>
#include <httplib.h>
#include <unistd.h>

#include <utility>

#include "atoll/net/address.h"
#include "atoll/net/limited_stream.h"

namespace atl::net {
namespace {

/// Of the answer's headers.
constexpr size_t kMaxHeaderBytes = size_t{16} << 10;

/// The library's client with our stream in the place of its own. (The library's HTTPS takes a
/// common name for a host's, and has no deadline for the whole.)
class HttpsClient final : public httplib::ClientImpl {
 public:
  HttpsClient(const Address& server, const HttpsIdentity& who, LimitedStream::Limits limits)
      : ClientImpl(server.host, server.port), server_(server), who_(who), limits_(limits) {}

  /// Why there is no answer, as far as it is known.
  const std::string& fault() const { return fault_; }

 private:
  bool process_socket(const Socket& socket, std::function<bool(httplib::Stream&)> ask) override {
    set_nonblocking(socket.sock);
    LimitedStream stream(asking_stream(Descriptor(::dup(socket.sock)), server_, who_), limits_,
                         clock_, nullptr);
    if (const auto greeted = stream.greet(); !greeted) {
      fault_ = greeted.error().message;
      return false;
    }
    const bool is_answered = ask(stream);
    // A server that does not take this member's certificate says so, and hangs up before it could
    // be asked: that is still to be read.
    if (char next = 0; !is_answered) stream.read(&next, 1);
    fault_ = stream.fault();
    stream.end();
    return is_answered;
  }

  const Address server_;
  const HttpsIdentity& who_;
  const LimitedStream::Limits limits_;
  const SystemClock clock_;
  std::string fault_;
};

Result<HttpReply> get(auto& client, const std::string& address, const std::string& path,
                      const httplib::Headers& headers, Duration patience, size_t max_bytes) {
  client.set_connection_timeout(patience);
  client.set_read_timeout(patience);
  client.set_write_timeout(patience);
  std::string body;
  const auto result = client.Get(path, headers, [&](const char* data, size_t size) {
    body.append(data, size);
    return body.size() <= max_bytes;
  });
  if (body.size() > max_bytes) {
    return failure(fmt::format("{} sent more than {} bytes", address, max_bytes));
  }
  switch (result.error()) {
    case httplib::Error::Success:
      return HttpReply{.status = result->status,
                       .type = result->get_header_value("Content-Type"),
                       .body = std::move(body)};
    case httplib::Error::Connection:
      return failure(fmt::format("nothing listens on {}", address));
    case httplib::Error::ConnectionTimeout:
      return failure(fmt::format("{} did not answer within {:.0f} s", address, seconds(patience)));
    default:
      return failure(fmt::format("{} listens, but gives no answer by HTTP", address));
  }
}

}  // namespace

Result<HttpReply> http_get(const std::string& address, const std::string& path, Duration patience,
                           size_t max_bytes) {
  const auto where = parse_address(address);
  if (!where) return failure(where.error().message);
  httplib::Client client(where->host, where->port);
  return get(client, address, path, {}, patience, max_bytes);
}

Result<HttpReply> https_get(const std::string& address, const std::string& path,
                            const HttpsIdentity& who, Duration patience, size_t max_bytes) {
  const auto where = parse_address(address);
  if (!where) return failure(where.error().message);
  HttpsClient client(
      *where, who,
      {.bytes = max_bytes + kMaxHeaderBytes, .deadline = SystemClock().now() + patience});
  httplib::Headers headers;
  if (!who.token.empty()) headers.emplace("Authorization", "Bearer " + who.token);
  auto reply = get(client, address, path, headers, patience, max_bytes);
  if (reply || client.fault().empty()) return reply;
  return failure(fmt::format("{} gives no answer: {}", address, client.fault()));
}

}  // namespace atl::net
