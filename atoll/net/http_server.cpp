#include "atoll/net/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <semaphore>
#include <thread>
#include <utility>

#include "atoll/identity/guess_limit.h"
#include "atoll/net/address.h"
#include "atoll/net/door.h"
#include "atoll/net/limited_stream.h"
#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

constexpr int kBacklog = 128;  // Connections that the kernel has accepted and we have not.

/// The library's threads, with a bound on who waits for one: then the thread that accepts waits,
/// and the kernel's short queue is the last.
class BoundedPool final : public httplib::ThreadPool {
 public:
  explicit BoundedPool(size_t threads)
      : ThreadPool(threads), room_(static_cast<std::ptrdiff_t>(2 * threads)) {}

  void enqueue(std::function<void()> work) override {
    room_.acquire();
    ThreadPool::enqueue([this, work = std::move(work)] {
      work();
      room_.release();
    });
  }

 private:
  std::counting_semaphore<> room_;
};

/// The connection that this thread serves: the library has no place in its request for who asks.
thread_local const LimitedStream* current_stream = nullptr;

/// The library's server with our streams in the place of its own.
class LimitedServer final : public httplib::Server {
 public:
  LimitedServer(HttpHandler handler, const Clock& clock, HttpLimits limits,
                std::shared_ptr<const HttpsHost> https)
      : limits_(limits), clock_(clock), https_(std::move(https)), door_(door_of(limits)) {
    new_task_queue = [threads = limits.threads] { return new BoundedPool(threads); };
    // Before the library looks at bodies or matches regular expressions with paths.
    set_pre_routing_handler(
        [handler = std::move(handler)](const httplib::Request& request, httplib::Response& out) {
          HttpReply reply{.status = 405, .body = "only GET is answered here\n"};
          if (request.method == "GET" || request.method == "HEAD") {
            reply = handler({.path = request.path,
                             .host = current_stream->remote_host(),
                             .authorization = request.get_header_value("Authorization"),
                             .certificate = current_stream->peer()});
          }
          out.status = reply.status;
          if (!reply.challenge.empty()) out.set_header("WWW-Authenticate", reply.challenge);
          out.set_content(reply.body, reply.type);
          return HandlerResponse::Handled;
        });
    set_socket_options(
        [](socket_t socket) {  // The library's own would share a port that is in use.
          const int on = 1;
          ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        });
  }

  /// Once bound. The library's queue of five loses connections, which then try again for seconds.
  void lengthen_queue() { ::listen(svr_sock_, kBacklog); }
  void end_connections() { stopping_ = true; }

 private:
  static std::shared_ptr<Door> door_of(const HttpLimits& limits) {
    const auto all = static_cast<int>(limits.threads);
    const auto one = static_cast<int>(limits.per_address);
    return std::make_shared<Door>(
        DoorLimits{.per_address = one, .greeting = all, .greeting_per_address = one});
  }

  bool process_and_close_socket(socket_t accepted) override {
    Descriptor socket(accepted);
    const auto place = door_->enter(identity::guess_group(remote_address(accepted).address().host));
    if (place == nullptr) return false;
    set_nonblocking(accepted);
    LimitedStream stream(
        https_ != nullptr ? https_->called_stream(std::move(socket))
                          : make_plain_stream(std::move(socket)),
        {.bytes = limits_.request_bytes, .deadline = clock_.now() + limits_.deadline}, clock_,
        &stopping_);
    if (!stream.greet()) return false;
    bool closed = false;
    current_stream = &stream;
    const bool done = process_request(stream, /*close_connection=*/true, closed, nullptr);
    current_stream = nullptr;
    stream.end();
    return done;
  }

  HttpLimits limits_;
  const Clock& clock_;
  const std::shared_ptr<const HttpsHost> https_;
  const std::shared_ptr<Door> door_;
  std::atomic<bool> stopping_{false};
};

}  // namespace

struct HttpServer::State {
  State(HttpHandler handler, const Clock& clock, HttpLimits limits,
        std::shared_ptr<const HttpsHost> https)
      : server(std::move(handler), clock, limits, std::move(https)) {}

  LimitedServer server;
  std::atomic<bool> ended{false};
  std::thread thread;
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address,
                                                      HttpHandler handler, const Clock& clock,
                                                      HttpLimits limits,
                                                      std::shared_ptr<const HttpsHost> https) {
  auto where = parse_address(address);
  if (!where) return failure(where.error().message);
  if (https == nullptr && !is_loopback(*where)) {
    return failure(fmt::format("{} is not on this machine, and whoever reaches it could read along",
                               where->text()));
  }
  auto state = std::make_unique<State>(std::move(handler), clock, limits, std::move(https));
  errno = 0;
  const int port = where->port == 0 ? state->server.bind_to_any_port(where->host)
                   : state->server.bind_to_port(where->host, where->port) ? where->port
                                                                          : -1;
  if (port < 0) {
    return failure(fmt::format("cannot listen on {}: {}", where->text(),
                               errno == 0 ? "no such address" : std::strerror(errno)));
  }
  state->server.lengthen_queue();
  where->port = static_cast<uint16_t>(port);
  return std::unique_ptr<HttpServer>(new HttpServer(where->text(), std::move(state)));
}

HttpServer::HttpServer(std::string address, std::unique_ptr<State> state)
    : address_(std::move(address)), state_(std::move(state)) {
  state_->thread = std::thread([state = state_.get()] {
    state->server.listen_after_bind();
    state->ended = true;
  });
  // A stop() before the server runs would be lost.
  while (!state_->server.is_running() && !state_->ended) std::this_thread::yield();
}

HttpServer::~HttpServer() {
  state_->server.end_connections();
  state_->server.stop();
  state_->thread.join();
}

}  // namespace atl::net
