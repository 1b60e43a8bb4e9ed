#include "atoll/net/socket_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>

#include <cstring>

#include "atoll/base/descriptor.h"

namespace atl::net {
namespace {

/// A peer that came over IPv4 to a socket for both kinds is shown as what it is.
constexpr std::string_view kMappedV4 = "::ffff:";

Result<std::vector<SocketAddress>> ask(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_flags = flags;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return failure(::gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress socket_address{.size = one->ai_addrlen};
    std::memcpy(&socket_address.storage, one->ai_addr, one->ai_addrlen);
    addresses.push_back(socket_address);
  }
  ::freeaddrinfo(found);
  return addresses;
}

}  // namespace

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
}

Address SocketAddress::address() const {
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "0";
  ::getnameinfo(get(), size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
  std::string text = host;
  if (text.starts_with(kMappedV4) && text.find('.') != std::string::npos) {
    text = text.substr(kMappedV4.size());
  }
  return {.host = text, .port = static_cast<uint16_t>(std::stoi(port))};
}

Result<std::vector<SocketAddress>> look_up(const Address& address, bool listening) {
  return ask(address, listening ? AI_PASSIVE : 0);
}

SocketAddress local_address(int socket) {
  SocketAddress address{.size = sizeof(sockaddr_storage)};
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return address;
}

SocketAddress remote_address(int socket) {
  SocketAddress address{.size = sizeof(sockaddr_storage)};
  ::getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return address;
}

SocketAddress any_address(int family) {
  SocketAddress address{.size = family == AF_INET6 ? static_cast<socklen_t>(sizeof(sockaddr_in6))
                                                   : static_cast<socklen_t>(sizeof(sockaddr_in))};
  address.storage.ss_family = static_cast<sa_family_t>(family);
  return address;
}

std::optional<SocketAddress> numeric_address(const Address& address) {
  const auto found = ask(address, AI_NUMERICHOST);
  if (!found || found->empty()) return std::nullopt;
  return found->front();
}

bool share_port(int socket, const SocketAddress& address) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
  return ::bind(socket, address.get(), address.size) == 0;
}

std::string host_towards(const Address& remote) {
  const auto found = look_up(remote);
  if (!found) return "";
  for (const SocketAddress& one : *found) {
    const Descriptor socket(::socket(one.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket.get() >= 0 && ::connect(socket.get(), one.get(), one.size) == 0) {
      return local_address(socket.get()).address().host;
    }
  }
  return "";
}

std::vector<std::string> own_hosts() {
  ifaddrs* interfaces = nullptr;
  if (::getifaddrs(&interfaces) != 0) return {};
  std::vector<std::string> hosts;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      SocketAddress address{.size = family == AF_INET
                                        ? static_cast<socklen_t>(sizeof(sockaddr_in))
                                        : static_cast<socklen_t>(sizeof(sockaddr_in6))};
      std::memcpy(&address.storage, one->ifa_addr, address.size);
      const Address found = address.address();
      // Of IPv6 those that are good on one link alone have its name behind a %.
      if (!is_loopback(found) && found.host.find('%') == std::string::npos) {
        hosts.push_back(found.host);
      }
    }
  }
  ::freeifaddrs(interfaces);
  return hosts;
}

void send_without_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace atl::net
