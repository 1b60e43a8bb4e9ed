#pragma once
// A transport between threads of one process: real concurrency, no network. Protocol code runs over
// it under ThreadSanitizer, and its peers die as tests want them to.
//
// Each transport delivers its events on a thread of its own. All methods may be called from any
// thread.
#include <cstddef>
#include <memory>

#include "atoll/net/transport.h"

namespace atl::net {

/// Transports made from the same network reach each other by the addresses they listen on; the host
/// part is free text. May be destroyed before its transports.
class MemoryNetwork {
 public:
  /// `queue_bytes` bounds what one connection holds in one direction before send() says kFull.
  explicit MemoryNetwork(size_t queue_bytes = size_t{4} << 20);
  ~MemoryNetwork();

  std::unique_ptr<Transport> make_transport(Transport::Sink sink);
  /// kill -9: the peers see Lost at once, what was queued is gone; the transport does nothing more.
  void crash(Transport& transport);

 private:
  class Hub;       // What the transports share.
  class Node;      // One transport.
  struct Mailbox;  // What waits for it.
  std::shared_ptr<Hub> hub_;
};

}  // namespace atl::net
