#include "atoll/net/dialer.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

/// The addresses of one name, tried in their order. On the loop.
class Dial : public std::enable_shared_from_this<Dial> {
 public:
  Dial(std::shared_ptr<EventLoop> loop, std::vector<SocketAddress> addresses, Port port,
       Dialled done)
      : loop_(std::move(loop)),
        addresses_(std::move(addresses)),
        port_(port),
        done_(std::move(done)) {}

  void start(Duration patience) {
    // One that does not answer must leave time for the next.
    const Duration each = patience / static_cast<int64_t>(addresses_.size());
    for (size_t i = 1; i <= addresses_.size(); ++i) {
      loop_->call_after(i * each, [weak = weak_from_this(), i] {
        const auto self = weak.lock();
        if (self && self->next_ <= i) self->give_up_one();
      });
    }
    try_next();
  }

 private:
  void try_next() {
    while (next_ < addresses_.size()) {
      const SocketAddress& address = addresses_[next_++];
      socket_ =
          Descriptor(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (socket_.get() >= 0) {
        send_without_delay(socket_.get());
        if (port_ == Port::kShared) share_port(socket_.get(), any_address(address.family()));
        if (::connect(socket_.get(), address.get(), address.size) == 0) return finish();
        if (errno == EINPROGRESS) return wait();
      }
      reason_ = std::strerror(errno);
    }
    done_(failure(reason_ == std::strerror(ECONNREFUSED) ? "connection refused" : reason_));
  }

  void wait() {
    loop_->watch(socket_.get(), EPOLLOUT, [self = shared_from_this()](uint32_t /*ready*/) {
      self->loop_->forget(self->socket_.get());
      int error = 0;
      socklen_t size = sizeof error;
      ::getsockopt(self->socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error == 0) return self->finish();
      self->reason_ = std::strerror(error);
      self->try_next();
    });
  }

  void finish() { done_(std::move(socket_)); }

  /// Of one that is over nothing is left but this.
  void give_up_one() {
    loop_->forget(socket_.get());
    reason_ = "no answer";
    try_next();
  }

  const std::shared_ptr<EventLoop> loop_;
  const std::vector<SocketAddress> addresses_;
  const Port port_;
  const Dialled done_;
  size_t next_ = 0;
  Descriptor socket_;
  std::string reason_ = "it has no address";
};

void dial_found(const std::shared_ptr<EventLoop>& loop,
                const Result<std::vector<SocketAddress>>& addresses, Duration patience, Port port,
                const Dialled& done) {
  if (!addresses) return done(tl::unexpected(addresses.error()));
  std::make_shared<Dial>(loop, *addresses, port, done)->start(patience);
}

}  // namespace

void dial(const std::shared_ptr<EventLoop>& loop, const Address& address, Duration patience,
          Dialled done, Port port) {
  if (const auto numeric = numeric_address(address)) {
    loop->post([loop = std::weak_ptr(loop), numeric, patience, port, done = std::move(done)] {
      if (const auto still = loop.lock()) dial_found(still, {{*numeric}}, patience, port, done);
    });
    return;
  }
  // A name server that does not answer takes many seconds, and cannot be interrupted: nobody waits
  // for that thread.
  std::thread([loop, address, patience, port, done = std::move(done)] {
    loop->post([loop = std::weak_ptr(loop), addresses = look_up(address), patience, port, done] {
      if (const auto still = loop.lock()) dial_found(still, addresses, patience, port, done);
    });
  }).detach();
}

}  // namespace atl::net
