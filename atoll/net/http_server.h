#pragma once
// A small HTTP server for questions that one string answers (the status of a run). It has threads
// of its own, so that slow readers hold up each other at most, never who started it. A request is
// answered and its connection closed. Every connection has a deadline and a number of bytes that it
// may send: the library below would read headers of any length for as long as bytes trickle in.
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"
#include "atoll/identity/certificate.h"
#include "atoll/net/https.h"

namespace atl::net {

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string challenge;  // Of a 401: what to authenticate with (WWW-Authenticate).
};

struct HttpRequest {
  std::string path;           // Percent signs decoded, without the query.
  std::string host;           // Who asks: its address as a number, without its port.
  std::string authorization;  // The header's value; empty: none.
  /// That the client showed, over HTTPS; signed by the authority, perhaps revoked.
  std::optional<identity::CertificateFacts> certificate;
};

struct HttpLimits {
  size_t threads = 64;  // That many connections are served at once; as many more wait their turn.
  size_t request_bytes = size_t{16} << 10;      // Of one connection, headers and body.
  Duration deadline = std::chrono::seconds(5);  // From its acceptance to the end of the reply.
  size_t per_address = 64;  // Of one address, or one IPv6 network; more are closed unanswered.
};

/// Answers GET.
using HttpHandler = std::function<HttpReply(const HttpRequest& request)>;

class HttpServer {
 public:
  /// Serves from now on; port 0: the system chooses. `handler` is called from several threads,
  /// until the server is destroyed; `clock` must outlive that. Over HTTPS if there is a host for
  /// it; else in the clear. Fails when its port is in use, or when whoever reaches the address from
  /// elsewhere could read in the clear.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, HttpHandler handler,
                                                   const Clock& clock, HttpLimits limits = {},
                                                   std::shared_ptr<const HttpsHost> https = {});
  /// Ends the connections that are open; returns within a moment, whatever their clients do.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// HOST:PORT with the port that was bound.
  const std::string& address() const { return address_; }

 private:
  struct State;
  HttpServer(std::string address, std::unique_ptr<State> state);

  std::string address_;
  std::unique_ptr<State> state_;
};

}  // namespace atl::net
