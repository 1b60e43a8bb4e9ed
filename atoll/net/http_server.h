#pragma once
// An HTTP server: the status of a run, an API whose answers stream for minutes. One thread takes
// connections and reads requests as they trickle in, so slow clients cost a place and no thread; a
// request that is whole is answered on a thread of its own, of which there are as many as are
// needed, up to a bound. Every connection has a deadline and a number of bytes that it may send.
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/identity/certificate.h"
#include "atoll/net/https.h"

namespace atl::net {

/// Takes a reply that is made bit by bit. For the thread that makes it.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  /// Sends it at once. False: nobody reads on, and there is no reason to go on.
  virtual bool write(std::string_view part) = 0;
};

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string challenge;  // Of a 401: what to authenticate with (WWW-Authenticate).
  std::vector<std::pair<std::string, std::string>> fields;  // Other headers.
  /// In the place of `body`: called once the head is sent.
  std::function<void(HttpSink& sink)> stream;
};

struct HttpRequest {
  std::string path;  // Percent signs decoded, without the query.
  std::string method = "GET";
  std::string body;
  std::string host;           // Who asks: its address as a number, without its port.
  std::string authorization;  // The header's value; empty: none.
  /// That the client showed, over HTTPS; signed by the authority, perhaps revoked.
  std::optional<identity::CertificateFacts> certificate;
  /// Whether the client went while its answer is made, or the server ends.
  std::function<bool()> has_gone;
};

struct HttpLimits {
  size_t threads = 64;  // That many requests are answered at once; others wait.
  size_t connections = 128;
  size_t head_bytes = size_t{16} << 10;
  size_t body_bytes = 0;  // 0: only GET is answered.
  /// For a request to come, and for a reply, or a part of one that streams, to be taken.
  Duration deadline = std::chrono::seconds(5);
  /// For how long a connection waits for its next request; 0: it is closed after each.
  Duration keep_alive{};
  size_t per_address = 64;  // Of one address, or one IPv6 network; more are closed unanswered.
};

/// Answers GET, and other methods where there may be bodies.
using HttpHandler = std::function<HttpReply(const HttpRequest& request)>;

class HttpServer {
 public:
  /// Serves from now on; port 0: the system chooses. `handler` is called from several threads,
  /// until the server is destroyed; `clock` must outlive that. Over HTTPS if there is a host for
  /// it; else in the clear. Fails when its port is in use, or when whoever reaches the address from
  /// elsewhere could read in the clear, unless `exposure` allows it.
  enum class Exposure : uint8_t { kLoopbackInTheClear, kAnywhereInTheClear };
  static Result<std::unique_ptr<HttpServer>> start(
      const std::string& address, HttpHandler handler, const Clock& clock, HttpLimits limits = {},
      std::shared_ptr<const HttpsHost> https = {},
      Exposure exposure = Exposure::kLoopbackInTheClear);
  /// Ends the connections that are open; returns when the handlers have, whose clients are gone.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  class State;
  HttpServer(std::string address, std::unique_ptr<State> state);

  std::string address_;
  std::unique_ptr<State> state_;
};

}  // namespace atl::net
