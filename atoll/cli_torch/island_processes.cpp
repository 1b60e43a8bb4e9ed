#include "atoll/cli_torch/island_processes.h"

#include <csignal>

#include "atoll/base/clock.h"
#include "atoll/island/following.h"

namespace atl::cli {
namespace {

const SystemClock kClock;

}  // namespace

std::unique_ptr<group::Processes> meet_others(const AskedOfProcess& asked) {
  return std::make_unique<group::Processes>(
      group::ProcessesOptions{.place = asked.place, .timeout = duration_of(asked.timeout_s)},
      kClock);
}

void follow_here(const AskedOfProcess& asked) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  const auto processes = meet_others(asked);
  island::follow(*processes, {.config_file = asked.config_file, .overrides = asked.overrides});
}

}  // namespace atl::cli
