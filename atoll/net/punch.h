#pragma once
// A direct connection of two that are both behind what translates addresses: both call each other
// at once from ports that the other knows, so that each one's first packet lets the other's in.
// Where one can be reached after all it is called simply. Who is at the other end of what comes of
// it nobody knows yet. On one loop.
#include <functional>
#include <memory>
#include <vector>

#include "atoll/base/descriptor.h"
#include "atoll/net/event_loop.h"
#include "atoll/net/socket_address.h"

namespace atl::net {

class Punch : public std::enable_shared_from_this<Punch> {
 public:
  /// A connected socket, to that one of the targets' hosts.
  using OnSocket = std::function<void(Descriptor)>;

  /// Calls from `local`, whose port other sockets share, and takes calls there. `seed`: of the
  /// pauses between attempts.
  Punch(std::shared_ptr<EventLoop> loop, const SocketAddress& local,
        const std::vector<SocketAddress>& targets, uint64_t seed, OnSocket on_socket);
  void start();
  /// Nothing comes any more.
  void stop();

 private:
  struct Target {
    SocketAddress address;
    Descriptor socket;
    uint64_t num_attempts = 0;
    bool is_reached = false;
  };

  void listen();
  void accept_all();
  void call(size_t number);
  void on_called(size_t number);
  void call_again(size_t number);
  void hand_over(Descriptor socket);

  const std::shared_ptr<EventLoop> loop_;
  const SocketAddress local_;
  const uint64_t seed_;
  std::vector<Target> targets_;
  OnSocket on_socket_;
  Descriptor listening_;
  int num_sockets_ = 0;
  bool is_over_ = false;
};

}  // namespace atl::net
