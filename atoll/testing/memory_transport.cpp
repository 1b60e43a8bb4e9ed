#include "atoll/testing/memory_transport.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <thread>

#include "atoll/base/check.h"
#include "atoll/base/mutex.h"
#include "atoll/net/address.h"

namespace atl::net {

/// What waits for one transport's thread; the hub's, under its mutex.
struct MemoryNetwork::Mailbox {
  Condition changed;
  std::deque<std::pair<ConnectionId, Event>> events;
  bool stopped = false;
  Traffic traffic;
};

/// All state, under one mutex: simple to see that it is right, and fast enough for tests.
class MemoryNetwork::Hub {
 public:
  explicit Hub(size_t queue_bytes) : queue_bytes_(queue_bytes) {}

  Result<std::string> listen(Mailbox& mailbox, const std::string& address);
  ConnectionId connect(Mailbox& mailbox, const std::string& address, Plane plane);
  ConnectionId meet(Mailbox& mailbox, const Meeting& meeting);
  Sent send(ConnectionId connection, Bytes frame);
  void close(ConnectionId connection);
  Traffic traffic(const Mailbox& mailbox) const;
  /// Ends the node: its peers see Lost, after what it had sent or (crash) at once.
  void remove(Mailbox& mailbox, bool flush);
  void deliver_until_stopped(Mailbox& mailbox, const Transport::Sink& sink);

 private:
  /// One side of a connection.
  struct End {
    Mailbox* mailbox = nullptr;
    ConnectionId peer = 0;
    size_t queued_bytes = 0;  // Sent from here, not yet delivered.
    bool refused = false;
    bool closing = false;
    std::string remote;
  };

  void push(ConnectionId connection, Event event) ATOLL_REQUIRES(mutex_);
  void lose(ConnectionId connection, const std::string& reason, bool all_arrived = false)
      ATOLL_REQUIRES(mutex_);
  void count_delivery(const Received& received) ATOLL_REQUIRES(mutex_);

  const size_t queue_bytes_;
  mutable Mutex mutex_;
  ConnectionId num_connections_ ATOLL_GUARDED_BY(mutex_) = 0;
  uint16_t last_port_ ATOLL_GUARDED_BY(mutex_) = 40'000;
  std::map<uint16_t, Mailbox*> listeners_ ATOLL_GUARDED_BY(mutex_);
  std::map<ConnectionId, End> ends_ ATOLL_GUARDED_BY(mutex_);
};

class MemoryNetwork::Node final : public Transport {
 public:
  Node(std::shared_ptr<Hub> hub, Sink sink) : hub_(std::move(hub)), sink_(std::move(sink)) {
    thread_ = std::jthread([this] { hub_->deliver_until_stopped(mailbox_, sink_); });
  }
  ~Node() override {
    hub_->remove(mailbox_, /*flush=*/true);
    thread_.join();
  }

  Result<std::string> listen(const std::string& address) override {
    return hub_->listen(mailbox_, address);
  }
  ConnectionId connect(const std::string& address, Plane plane) override {
    return hub_->connect(mailbox_, address, plane);
  }
  ConnectionId meet(const Meeting& meeting, Plane /*plane*/) override {
    return hub_->meet(mailbox_, meeting);
  }
  Sent send(ConnectionId connection, Bytes frame) override {
    return hub_->send(connection, std::move(frame));
  }
  void close(ConnectionId connection) override { hub_->close(connection); }
  void crash() { hub_->remove(mailbox_, /*flush=*/false); }
  Traffic traffic() const override { return hub_->traffic(mailbox_); }

 private:
  std::shared_ptr<Hub> hub_;
  Sink sink_;
  Mailbox mailbox_;
  std::jthread thread_;
};

Result<std::string> MemoryNetwork::Hub::listen(Mailbox& mailbox, const std::string& address) {
  const auto parsed = parse_address(address);
  if (!parsed) return tl::unexpected(parsed.error());
  const MutexLock lock(mutex_);
  const uint16_t port = parsed->port != 0 ? parsed->port : ++last_port_;
  const std::string bound = Address{parsed->host, port}.text();
  if (!listeners_.emplace(port, &mailbox).second) {
    return failure(fmt::format("cannot listen on {}: address already in use", bound));
  }
  return bound;
}

ConnectionId MemoryNetwork::Hub::connect(Mailbox& mailbox, const std::string& address,
                                         Plane plane) {
  const auto parsed = parse_address(address);
  const MutexLock lock(mutex_);
  const ConnectionId here = ++num_connections_;
  ends_[here] = {.mailbox = &mailbox, .remote = address};
  if (!parsed || mailbox.stopped) {
    lose(here, parsed ? "this transport has ended" : parsed.error().message);
    return here;
  }
  const auto listener = listeners_.find(parsed->port);
  if (listener == listeners_.end()) {
    lose(here, fmt::format("cannot connect to {}: connection refused", address));
    return here;
  }
  const ConnectionId there = ++num_connections_;
  ends_[there] = {.mailbox = listener->second, .peer = here, .remote = "memory"};
  ends_[here].peer = there;
  push(there, Opened{there, true, plane, "memory"});
  push(here, Opened{here, false, plane, address});
  return here;
}

ConnectionId MemoryNetwork::Hub::meet(Mailbox& mailbox, const Meeting& meeting) {
  const MutexLock lock(mutex_);
  const ConnectionId here = ++num_connections_;
  ends_[here] = {.mailbox = &mailbox, .remote = meeting.relay};
  lose(here, fmt::format("cannot meet at {}: nobody relays here", meeting.relay));
  return here;
}

Sent MemoryNetwork::Hub::send(ConnectionId connection, Bytes frame) {
  ATOLL_CHECK(frame.size() <= kMaxFrameBytes);
  const MutexLock lock(mutex_);
  const auto found = ends_.find(connection);
  if (found == ends_.end() || found->second.closing) return Sent::kClosed;
  End& end = found->second;
  if (end.queued_bytes > 0 && end.queued_bytes + frame.size() > queue_bytes_) {
    end.refused = true;
    return Sent::kFull;
  }
  end.queued_bytes += frame.size();
  end.mailbox->traffic.bytes_sent += static_cast<int64_t>(frame.size());
  push(end.peer, Received{end.peer, std::move(frame)});
  return Sent::kAccepted;
}

void MemoryNetwork::Hub::close(ConnectionId connection) {
  const MutexLock lock(mutex_);
  const auto found = ends_.find(connection);
  if (found == ends_.end()) return;
  const ConnectionId peer = found->second.peer;
  // Events are delivered in order, so the peer sees this after all that was sent.
  lose(connection, "closed by this side");
  lose(peer, "closed by the other side", /*all_arrived=*/true);
}

Traffic MemoryNetwork::Hub::traffic(const Mailbox& mailbox) const {
  const MutexLock lock(mutex_);
  return mailbox.traffic;
}

void MemoryNetwork::Hub::remove(Mailbox& mailbox, bool flush) {
  const MutexLock lock(mutex_);
  mailbox.stopped = true;
  mailbox.events.clear();
  mailbox.changed.notify_all();
  std::erase_if(listeners_, [&](const auto& entry) { return entry.second == &mailbox; });
  std::erase_if(ends_, [&](const auto& entry) ATOLL_REQUIRES(mutex_) {
    const End& end = entry.second;
    if (end.mailbox != &mailbox) return false;
    const auto peer = ends_.find(end.peer);
    if (peer != ends_.end()) {
      if (!flush) {
        std::erase_if(peer->second.mailbox->events, [&](const auto& event) {
          return event.first == end.peer && std::holds_alternative<Received>(event.second);
        });
      }
      push(end.peer,
           Lost{end.peer, flush ? "closed by the other side" : "connection reset", flush});
      peer->second.closing = true;
    }
    return true;
  });
  std::erase_if(ends_, [](const auto& entry) { return entry.second.closing; });
}

void MemoryNetwork::Hub::push(ConnectionId connection, Event event) {
  const auto found = ends_.find(connection);
  if (found == ends_.end() || found->second.mailbox->stopped) return;
  found->second.mailbox->events.emplace_back(connection, std::move(event));
  found->second.mailbox->changed.notify_one();
}

void MemoryNetwork::Hub::lose(ConnectionId connection, const std::string& reason,
                              bool all_arrived) {
  push(connection, Lost{connection, reason, all_arrived});
  ends_.erase(connection);
}

void MemoryNetwork::Hub::count_delivery(const Received& received) {
  const auto here = ends_.find(received.connection);
  if (here == ends_.end()) return;
  const auto sender = ends_.find(here->second.peer);
  if (sender == ends_.end()) return;
  End& end = sender->second;
  end.queued_bytes -= received.frame.size();
  if (end.refused && end.queued_bytes <= queue_bytes_ / 2) {
    end.refused = false;
    push(sender->first, Writable{sender->first});
  }
}

void MemoryNetwork::Hub::deliver_until_stopped(Mailbox& mailbox, const Transport::Sink& sink) {
  MutexLock lock(mutex_);
  while (true) {
    mailbox.changed.wait(lock, [&] { return mailbox.stopped || !mailbox.events.empty(); });
    if (mailbox.stopped) return;
    auto [connection, event] = std::move(mailbox.events.front());
    mailbox.events.pop_front();
    if (const auto* received = std::get_if<Received>(&event)) {
      mailbox.traffic.bytes_received += static_cast<int64_t>(received->frame.size());
      count_delivery(*received);
    }
    lock.unlock();
    sink(std::move(event));
    lock.lock();
  }
}

MemoryNetwork::MemoryNetwork(size_t queue_bytes) : hub_(std::make_shared<Hub>(queue_bytes)) {}
MemoryNetwork::~MemoryNetwork() = default;

std::unique_ptr<Transport> MemoryNetwork::make_transport(Transport::Sink sink) {
  return std::make_unique<Node>(hub_, std::move(sink));
}

void MemoryNetwork::crash(Transport& transport) { dynamic_cast<Node&>(transport).crash(); }

}  // namespace atl::net
