#pragma once
// Where the coordinator's thread leaves the newest status of its run and the threads of the HTTP
// server find it. Neither waits for the other: all that happens under the lock is a swap of
// pointers.
#include <memory>
#include <mutex>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/net/http_server.h"
#include "atoll/swarm/status.h"

namespace atl::swarm {

/// Thread-safe.
class StatusBoard {
 public:
  /// `clock` must outlive it.
  StatusBoard(RunStatus first, const Clock& clock);

  void publish(RunStatus status);
  /// /status: JSON; /metrics: for Prometheus; others: 404 with what there is.
  net::HttpReply reply(const std::string& path) const;

 private:
  struct Published {
    RunStatus status;
    Time when{};
  };
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Published> newest_;
};

}  // namespace atl::swarm
