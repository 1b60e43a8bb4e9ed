#pragma once
// For tests of what runs over a transport: a sink that keeps every event and lets a test wait for
// one. Thread-safe.
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "atoll/base/mutex.h"
#include "atoll/net/transport.h"

namespace atl::net {

class Recorder {
 public:
  Transport::Sink sink() {
    return [this](Event event) {
      const MutexLock lock(mutex_);
      events_.push_back(std::move(event));
      changed_.notify_all();
    };
  }

  /// True once `holds(events so far)`; false after `patience`.
  bool wait(const std::function<bool(const std::vector<Event>&)>& holds,
            std::chrono::milliseconds patience = std::chrono::seconds(20)) {
    MutexLock lock(mutex_);
    return changed_.wait_for(lock, patience,
                             [&]() ATOLL_REQUIRES(mutex_) { return holds(events_); });
  }

  /// The first connection opened (inbound or not) on the plane; 0 if none comes in time.
  ConnectionId wait_opened(bool inbound, Plane plane = Plane::kBulk) {
    ConnectionId connection = 0;
    wait([&](const std::vector<Event>& events) {
      for (const Event& event : events) {
        const auto* opened = std::get_if<Opened>(&event);
        if (opened != nullptr && opened->inbound == inbound && opened->plane == plane) {
          connection = opened->connection;
        }
      }
      return connection != 0;
    });
    return connection;
  }

  /// The reason of the connection's loss; "not lost" if that does not come in time.
  std::string wait_lost(ConnectionId connection) {
    std::string reason = "not lost";
    wait([&](const std::vector<Event>& events) {
      for (const Event& event : events) {
        const auto* lost = std::get_if<Lost>(&event);
        if (lost != nullptr && lost->connection == connection) reason = lost->reason;
      }
      return reason != "not lost";
    });
    return reason;
  }

  /// Waits for `count` frames on the connection and returns all there are.
  std::vector<Bytes> wait_frames(ConnectionId connection, size_t count) {
    std::vector<Bytes> frames;
    wait([&](const std::vector<Event>& events) {
      frames.clear();
      for (const Event& event : events) {
        const auto* received = std::get_if<Received>(&event);
        if (received != nullptr && received->connection == connection) {
          frames.push_back(received->frame);
        }
      }
      return frames.size() >= count;
    });
    return frames;
  }

  /// How the connection began.
  Opened opened(ConnectionId connection) {
    Opened found;
    wait([&](const std::vector<Event>& events) {
      for (const Event& event : events) {
        const auto* opened = std::get_if<Opened>(&event);
        if (opened != nullptr && opened->connection == connection) found = *opened;
      }
      return found.connection != 0;
    });
    return found;
  }

  size_t num_events() {
    const MutexLock lock(mutex_);
    return events_.size();
  }

  template <typename T>
  size_t count(ConnectionId connection) {
    const MutexLock lock(mutex_);
    size_t count = 0;
    for (const Event& event : events_) {
      const auto* found = std::get_if<T>(&event);
      count += found != nullptr && found->connection == connection;
    }
    return count;
  }

 private:
  Mutex mutex_;
  Condition changed_;
  std::vector<Event> events_ ATOLL_GUARDED_BY(mutex_);
};

}  // namespace atl::net
