#include "atoll/cli_torch/island_processes.h"

#include <csignal>

#include "atoll/base/clock.h"
#include "atoll/island/following.h"

namespace atl::cli {
namespace {

const SystemClock kClock;

std::unique_ptr<group::Processes> meet(const AskedOfProcess& asked) {
  return std::make_unique<group::Processes>(
      group::ProcessesOptions{.place = asked.place, .timeout = duration_of(asked.timeout_s)},
      kClock);
}

island::Asked settings_of(const AskedOfProcess& asked) {
  return {.config_file = asked.config_file, .overrides = asked.overrides};
}

}  // namespace

std::unique_ptr<group::Processes> meet_others(const AskedOfProcess& asked) {
  auto processes = meet(asked);
  island::tell_asked(*processes, settings_of(asked));
  return processes;
}

void follow_here(const AskedOfProcess& asked) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  const auto processes = meet(asked);
  island::follow(*processes, settings_of(asked));
}

}  // namespace atl::cli
