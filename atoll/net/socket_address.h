#pragma once
// What the system knows of an address and of a socket. Private to atoll/net.
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "atoll/base/result.h"
#include "atoll/net/address.h"

namespace atl::net {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  void set_port(uint16_t port);
  /// HOST:PORT with the host as a number.
  Address address() const;
};

/// All that the name stands for; asks the network unless it is numeric, and waits. For `listening`
/// sockets or for those that connect.
Result<std::vector<SocketAddress>> look_up(const Address& address, bool listening = false);

/// Of this end of the socket, and of the other one.
SocketAddress local_address(int socket);
SocketAddress remote_address(int socket);

/// No address of this machine in particular, and no port.
SocketAddress any_address(int family);
/// Of an address written as numbers.
std::optional<SocketAddress> numeric_address(const Address& address);

/// Binds it to a port that other sockets of this user may share; false where that failed.
bool share_port(int socket, const SocketAddress& address);

/// Small frames go at once.
void send_without_delay(int socket);

}  // namespace atl::net
