#pragma once
// The listening end: takes what comes to an address, as far as the door lets it in, and gives it on
// with a place. On one loop.
#include <functional>
#include <memory>
#include <vector>

#include "atoll/base/descriptor.h"
#include "atoll/base/result.h"
#include "atoll/net/address.h"
#include "atoll/net/door.h"
#include "atoll/net/event_loop.h"

namespace atl::net {

class Acceptor {
 public:
  using OnSocket = std::function<void(Descriptor, std::shared_ptr<Door::Place>)>;

  /// Listens on all that the host's name stands for (port 0: the system chooses one for all) and
  /// returns the address bound. Fails when the port is in use. Before the acceptor goes the loop
  /// must have stopped.
  Result<Address> listen(std::shared_ptr<EventLoop> loop, std::shared_ptr<Door> door,
                         const Address& address, OnSocket on_socket);

 private:
  void accept_all(int listening);

  std::shared_ptr<EventLoop> loop_;
  std::shared_ptr<Door> door_;
  OnSocket on_socket_;
  std::vector<Descriptor> sockets_;
};

}  // namespace atl::net
