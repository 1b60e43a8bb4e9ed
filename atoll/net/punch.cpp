#include "atoll/net/punch.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "atoll/base/random.h"

namespace atl::net {
namespace {

/// What is refused now may be awaited a moment later.
constexpr Duration kShortestPause = std::chrono::milliseconds(100);
constexpr double kMostJitterSeconds = 0.15;
/// Whoever calls here, it is not worth more.
constexpr int kMaxSockets = 8;

}  // namespace

Punch::Punch(std::shared_ptr<EventLoop> loop, const SocketAddress& local,
             const std::vector<SocketAddress>& targets, uint64_t seed, OnSocket on_socket)
    : loop_(std::move(loop)), local_(local), seed_(seed), on_socket_(std::move(on_socket)) {
  const std::string own = local.address().text();
  for (const SocketAddress& target : targets) {
    const std::string text = target.address().text();
    const bool is_known = std::ranges::any_of(
        targets_, [&](const Target& other) { return other.address.address().text() == text; });
    // Who calls itself succeeds.
    if (is_known || text == own || target.family() != local.family()) continue;
    targets_.push_back({.address = target, .socket = {}});
  }
}

void Punch::start() {
  if (targets_.empty()) return;
  listen();
  for (size_t i = 0; i < targets_.size(); ++i) call(i);
}

void Punch::stop() {
  if (std::exchange(is_over_, true)) return;
  if (listening_.get() >= 0) loop_->forget(listening_.get());
  listening_ = {};
  for (Target& target : targets_) {
    if (target.socket.get() >= 0) loop_->forget(target.socket.get());
    target.socket = {};
  }
  on_socket_ = {};
}

void Punch::listen() {
  Descriptor socket(::socket(local_.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0 || !share_port(socket.get(), local_) ||
      ::listen(socket.get(), kMaxSockets) != 0) {
    return;  // It does without.
  }
  listening_ = std::move(socket);
  loop_->watch(listening_.get(), EPOLLIN,
               [self = shared_from_this()](uint32_t /*ready*/) { self->accept_all(); });
}

void Punch::accept_all() {
  while (!is_over_) {
    Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    const std::string host = remote_address(socket.get()).address().host;
    const bool is_expected = std::ranges::any_of(
        targets_, [&](const Target& target) { return target.address.address().host == host; });
    if (is_expected) hand_over(std::move(socket));
  }
}

void Punch::call(size_t number) {
  Target& target = targets_[number];
  if (is_over_ || target.is_reached) return;
  target.socket =
      Descriptor(::socket(target.address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (target.socket.get() < 0 || !share_port(target.socket.get(), local_)) {
    return call_again(number);
  }
  if (::connect(target.socket.get(), target.address.get(), target.address.size) != 0 &&
      errno != EINPROGRESS) {
    return call_again(number);
  }
  loop_->watch(
      target.socket.get(), EPOLLOUT,
      [self = shared_from_this(), number](uint32_t /*ready*/) { self->on_called(number); });
}

void Punch::on_called(size_t number) {
  Target& target = targets_[number];
  loop_->forget(target.socket.get());
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(target.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return call_again(number);
  target.is_reached = true;
  hand_over(std::exchange(target.socket, {}));
}

void Punch::call_again(size_t number) {
  Target& target = targets_[number];
  target.socket = {};
  const double jitter = random_uniform(seed_, number, target.num_attempts++) * kMostJitterSeconds;
  const Duration pause = kShortestPause + Duration(static_cast<int64_t>(jitter * 1e9));
  loop_->call_after(pause, [weak = weak_from_this(), number] {
    if (const auto self = weak.lock()) self->call(number);
  });
}

void Punch::hand_over(Descriptor socket) {
  if (is_over_ || ++num_sockets_ > kMaxSockets) return;
  send_without_delay(socket.get());
  const OnSocket on_socket = on_socket_;  // It may stop this.
  on_socket(std::move(socket));
}

}  // namespace atl::net
