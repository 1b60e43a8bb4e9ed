#pragma once
// Where the coordinator's thread leaves the newest status of its runs and the threads of the HTTP
// server find them. Neither waits for the other: all that happens under the lock is a swap of
// pointers.
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/mutex.h"
#include "atoll/coordinator/status.h"
#include "atoll/net/http_server.h"

namespace atl::swarm {

/// Thread-safe.
class StatusBoard {
 public:
  /// One status for each run, with the name that it is shown under. `clock` must outlive it.
  StatusBoard(std::vector<RunStatus> first, const Clock& clock);

  /// Of the run at that place; it keeps its name.
  void publish(size_t run, RunStatus status);
  /// /status: JSON of all runs; /status/NAME: of one; /metrics: for Prometheus; others: 404 with
  /// what there is.
  net::HttpReply reply(const std::string& path) const;

 private:
  struct Published {
    RunStatus status;
    Time when{};
  };
  std::vector<RunStatus> newest() const;

  const Clock& clock_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<const Published>> newest_ ATOLL_GUARDED_BY(mutex_);  // By run.
};

}  // namespace atl::swarm
