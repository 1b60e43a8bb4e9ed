#pragma once
// A small HTTP server for questions that one string answers (the status of a run). It has threads
// of its own, so that slow readers hold up each other at most, never who started it. A request is
// answered and its connection closed. Every connection has a deadline and a number of bytes that it
// may send: the library below would read headers of any length for as long as bytes trickle in.
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/result.h"

namespace atl::net {

struct HttpReply {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

struct HttpLimits {
  size_t threads = 64;  // That many connections are served at once; as many more wait their turn.
  size_t request_bytes = size_t{16} << 10;      // Of one connection, headers and body.
  Duration deadline = std::chrono::seconds(5);  // From its acceptance to the end of the reply.
};

/// Answers GET `path` (percent signs decoded, without the query).
using HttpHandler = std::function<HttpReply(const std::string& path)>;

class HttpServer {
 public:
  /// Serves from now on; port 0: the system chooses. `handler` is called from several threads,
  /// until the server is destroyed; `clock` must outlive that. Fails when the address is no
  /// loopback one or its port is in use.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address, HttpHandler handler,
                                                   const Clock& clock, HttpLimits limits = {});
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
