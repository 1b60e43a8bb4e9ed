#include "atoll/net/acceptor.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "atoll/identity/guess_limit.h"
#include "atoll/net/socket_address.h"

namespace atl::net {
namespace {

constexpr int kBacklog = 256;  // Connections that the kernel has accepted and we have not.
/// When the process has no descriptors left the kernel keeps who comes for so long.
constexpr Duration kBreather = std::chrono::milliseconds(100);

Result<Descriptor> listening_socket(const SocketAddress& address) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int off = 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) {  // [::] is for both kinds.
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (socket.get() < 0 || ::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return failure(std::strerror(errno));
  }
  return socket;
}

}  // namespace

Result<Address> Acceptor::listen(std::shared_ptr<EventLoop> loop, std::shared_ptr<Door> door,
                                 const Address& address, OnSocket on_socket) {
  const auto fails = [&](const std::string& why) {
    return failure(fmt::format("cannot listen on {}: {}", address.text(), why));
  };
  auto found = look_up(address, /*listening=*/true);
  if (!found) return fails(found.error().message);
  Address bound = address;
  std::string why = "it has no address";
  for (SocketAddress& one : *found) {
    one.set_port(bound.port);
    auto socket = listening_socket(one);
    if (!socket) {  // Of "localhost" there may be but one kind here.
      why = socket.error().message;
      continue;
    }
    bound.port = local_address(socket->get()).address().port;
    sockets_.push_back(std::move(*socket));
  }
  if (sockets_.empty()) return fails(why);
  loop_ = std::move(loop);
  door_ = std::move(door);
  on_socket_ = std::move(on_socket);
  for (const Descriptor& socket : sockets_) {
    loop_->post([this, listening = socket.get()] {
      loop_->watch(listening, EPOLLIN,
                   [this, listening](uint32_t /*ready*/) { accept_all(listening); });
    });
  }
  return bound;
}

void Acceptor::accept_all(int listening) {
  while (true) {
    Descriptor socket(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) {
      if (errno != EMFILE && errno != ENFILE) return;
      loop_->rewatch(listening, 0);
      loop_->call_after(kBreather, [this, listening] { loop_->rewatch(listening, EPOLLIN); });
      return;
    }
    send_without_delay(socket.get());
    auto place = door_->enter(identity::guess_group(remote_address(socket.get()).address().host));
    if (place) on_socket_(std::move(socket), std::move(place));
  }
}

}  // namespace atl::net
