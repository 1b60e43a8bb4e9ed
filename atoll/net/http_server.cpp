#include "atoll/net/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <semaphore>
#include <thread>
#include <utility>

#include "atoll/net/address.h"

namespace atl::net {
namespace {

constexpr int kBacklog = 128;  // Connections that the kernel has accepted and we have not.
constexpr Duration kPollInterval = std::chrono::milliseconds(50);  // For the end of the server.

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

/// A connection that ends by itself: at its deadline, after too many bytes, with the server.
class LimitedStream final : public httplib::Stream {
 public:
  LimitedStream(int socket, const HttpLimits& limits, const Clock& clock,
                const std::atomic<bool>& stopping)
      : socket_(socket),
        bytes_left_(limits.request_bytes),
        deadline_(clock.now() + limits.deadline),
        clock_(clock),
        stopping_(stopping) {}

  bool is_readable() const override { return begin_ < end_ || wait(POLLIN); }
  bool is_writable() const override { return wait(POLLOUT); }

  ssize_t read(char* out, size_t size) override {
    if (begin_ == end_) {
      const size_t most = std::min(buffer_.size(), bytes_left_);
      if (most == 0 || !wait(POLLIN)) return -1;
      const ssize_t got = ::recv(socket_, buffer_.data(), most, MSG_DONTWAIT);
      if (got <= 0) return got;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      bytes_left_ -= end_;
    }
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(out, buffer_.data() + begin_, count);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t size) override {
    if (!wait(POLLOUT)) return -1;
    const ssize_t sent = ::send(socket_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 && errno == EAGAIN ? 0 : sent;
  }

  // Nothing that is served depends on who asks.
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return socket_; }

 private:
  bool wait(short events) const {
    while (!stopping_ && clock_.now() < deadline_) {
      const Duration patience = std::min(kPollInterval, Duration(deadline_ - clock_.now()));
      const auto ms = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
      pollfd entry{socket_, events, 0};
      if (::poll(&entry, 1, static_cast<int>(std::max<int64_t>(ms, 0))) > 0) return true;
    }
    return false;
  }

  int socket_;
  size_t bytes_left_;
  Time deadline_;
  const Clock& clock_;
  const std::atomic<bool>& stopping_;
  std::array<char, 4096> buffer_{};
  size_t begin_ = 0;
  size_t end_ = 0;
};

/// The library's server with our streams in the place of its own.
class LimitedServer final : public httplib::Server {
 public:
  LimitedServer(HttpHandler handler, const Clock& clock, HttpLimits limits)
      : limits_(limits), clock_(clock) {
    new_task_queue = [threads = limits.threads] { return new BoundedPool(threads); };
    // Before the library looks at bodies or matches regular expressions with paths.
    set_pre_routing_handler(
        [handler = std::move(handler)](const httplib::Request& request, httplib::Response& out) {
          HttpReply reply{.status = 405, .body = "only GET is answered here\n"};
          if (request.method == "GET" || request.method == "HEAD") reply = handler(request.path);
          out.status = reply.status;
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
  bool process_and_close_socket(socket_t socket) override {
    LimitedStream stream(socket, limits_, clock_, stopping_);
    bool closed = false;
    const bool done = process_request(stream, /*close_connection=*/true, closed, nullptr);
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return done;
  }

  HttpLimits limits_;
  const Clock& clock_;
  std::atomic<bool> stopping_{false};
};

}  // namespace

struct HttpServer::State {
  State(HttpHandler handler, const Clock& clock, HttpLimits limits)
      : server(std::move(handler), clock, limits) {}

  LimitedServer server;
  std::atomic<bool> ended{false};
  std::thread thread;
};

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address,
                                                      HttpHandler handler, const Clock& clock,
                                                      HttpLimits limits) {
  auto where = parse_address(address);
  if (!where) return failure(where.error().message);
  if (!is_loopback(*where)) {
    return failure(fmt::format("{} is not on this machine, and whoever reaches it could read along",
                               where->text()));
  }
  auto state = std::make_unique<State>(std::move(handler), clock, limits);
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
