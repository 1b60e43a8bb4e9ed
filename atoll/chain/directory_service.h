#pragma once
// A directory on a transport: decodes frames, does what the directory decides. Without a thread;
// whoever owns the transport hands it the events of its connections.
#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/chain/directory.h"
#include "atoll/net/transport.h"

namespace atl::chain {

/// Not thread-safe. The transport must outlive it.
class DirectoryService {
 public:
  /// `tell` hears of events.h; it may be empty.
  DirectoryService(net::Transport& transport, EventSink tell, Time now);

  /// Of connections that are this directory's, from Opened on.
  void handle(const net::Event& event, Time now);
  void tell_revocations(Bytes signed_list);
  /// Call at next_deadline() or later.
  void tick(Time now);
  Time next_deadline() const { return directory_.next_deadline(); }
  const Directory& directory() const { return directory_; }

 private:
  void act(Directory::Actions actions);

  net::Transport& transport_;
  EventSink tell_;
  Directory directory_;
};

}  // namespace atl::chain
