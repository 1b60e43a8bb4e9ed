#include "atoll/swarm/status_board.h"

#include <utility>

namespace atl::swarm {

StatusBoard::StatusBoard(RunStatus first, const Clock& clock) : clock_(clock) {
  publish(std::move(first));
}

void StatusBoard::publish(RunStatus status) {
  auto newest = std::make_shared<const Published>(std::move(status), clock_.now());
  const std::scoped_lock lock(mutex_);
  newest_.swap(newest);
}

net::HttpReply StatusBoard::reply(const std::string& path) const {
  if (path != "/status" && path != "/metrics") {
    return {.status = 404,
            .body = "an Atoll coordinator: /status (JSON) and /metrics (Prometheus) are here\n"};
  }
  std::shared_ptr<const Published> newest;
  {
    const std::scoped_lock lock(mutex_);
    newest = newest_;
  }
  RunStatus status = newest->status;
  status.age_s = seconds(clock_.now() - newest->when);
  if (path == "/metrics") return {.type = kPrometheusType, .body = to_prometheus(status)};
  return {.type = "application/json", .body = to_json(status) + "\n"};
}

}  // namespace atl::swarm
