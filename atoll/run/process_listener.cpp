#include "atoll/run/process_listener.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/net/address.h"

namespace atl::run {
namespace {

constexpr int kBacklog = 1024;

std::string host_of(const addrinfo& address) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(address.ai_addr, address.ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

}  // namespace

std::optional<ProcessListener> listen_for_processes(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found) != 0) {
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  const bool all_are_here = net::is_loopback({.host = host, .port = port});
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    if (!all_are_here && net::is_loopback({.host = host_of(*one), .port = port})) continue;
    const int socket = ::socket(one->ai_family, SOCK_STREAM, 0);
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (socket >= 0 && ::bind(socket, one->ai_addr, one->ai_addrlen) == 0 &&
        ::listen(socket, kBacklog) == 0) {
      return ProcessListener{.socket = socket, .port = port_of(socket)};
    }
    const int error = errno;
    if (socket >= 0) ::close(socket);
    if (error == EADDRINUSE || error == EACCES) throw InputError(std::strerror(error));
  }
  return std::nullopt;
}

}  // namespace atl::run
