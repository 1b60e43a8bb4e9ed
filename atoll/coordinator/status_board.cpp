#include "atoll/coordinator/status_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace atl::swarm {
namespace {

constexpr std::string_view kOneRun = "/status/";

net::HttpReply nothing_here(const std::vector<RunStatus>& runs) {
  std::string text = "an Atoll coordinator: /status (JSON) and /metrics (Prometheus) are here";
  for (const RunStatus& run : runs) {
    if (!run.name.empty()) text += fmt::format(", {}{}", kOneRun, run.name);
  }
  return {.status = 404, .body = text + "\n"};
}

}  // namespace

StatusBoard::StatusBoard(std::vector<RunStatus> first, const Clock& clock) : clock_(clock) {
  for (RunStatus& status : first) {
    newest_.push_back(std::make_shared<const Published>(std::move(status), clock_.now()));
  }
}

void StatusBoard::publish(size_t run, RunStatus status) {
  auto newest = std::make_shared<Published>(std::move(status), clock_.now());
  std::shared_ptr<const Published> before;  // Destroyed without the lock.
  const MutexLock lock(mutex_);
  before = newest_.at(run);
  newest->status.name = before->status.name;
  newest_[run] = std::move(newest);
}

std::vector<RunStatus> StatusBoard::newest() const {
  std::vector<std::shared_ptr<const Published>> newest;
  {
    const MutexLock lock(mutex_);
    newest = newest_;
  }
  std::vector<RunStatus> runs;
  for (const auto& published : newest) {
    runs.push_back(published->status);
    // What is over does not change any more.
    if (published->status.state == RunState::kOver) continue;
    runs.back().age_s = seconds(clock_.now() - published->when);
  }
  return runs;
}

net::HttpReply StatusBoard::reply(const std::string& path) const {
  const std::vector<RunStatus> runs = newest();
  if (path == "/metrics") return {.type = kPrometheusType, .body = to_prometheus(runs)};
  std::string json;
  if (path == "/status") {
    json = runs_to_json(runs);
  } else if (path.starts_with(kOneRun) && path.size() > kOneRun.size()) {
    const auto run = std::ranges::find(runs, path.substr(kOneRun.size()), &RunStatus::name);
    if (run != runs.end()) json = to_json(*run);
  }
  if (json.empty()) return nothing_here(runs);
  return {.type = "application/json", .body = json + "\n"};
}

}  // namespace atl::swarm
