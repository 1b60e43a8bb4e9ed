#include "atoll/island/joining.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/random.h"
#include "atoll/base/settings.h"
#include "atoll/net/address.h"
#include "atoll/net/grpc_transport.h"
#include "atoll/run/events.h"
#include "atoll/run/run_folder.h"
#include "atoll/swarm/rules.h"

namespace atl::island {
namespace {

/// The shared settings that the user gave: the coordinator's must be the same.
std::map<std::string, std::string> demands_of(const JoinOptions& options, run::RunConfig& asked) {
  SettingList list = asked.settings();
  for (const std::string& assignment : options.overrides) list.apply_override(assignment);
  std::map<std::string, std::string> demands;
  const auto shared = list.shared();
  for (const std::string& assignment : options.overrides) {
    const std::string name = assignment.substr(0, assignment.find('='));
    if (shared.contains(name)) demands[name] = shared.at(name);
  }
  return demands;
}

struct WantedRun {
  std::string address;  // Of its coordinator.
  std::string name;     // Empty: the only one there.
};

/// Reads "HOST:PORT" or "HOST:PORT/NAME". Throws UsageError.
WantedRun wanted_run(const std::string& text) {
  const size_t slash = text.find('/');
  WantedRun wanted{.address = text.substr(0, slash)};
  net::require_address("the coordinator", wanted.address);
  if (slash == std::string::npos) return wanted;
  wanted.name = text.substr(slash + 1);
  if (!swarm::is_valid_name(wanted.name)) {
    throw UsageError(fmt::format(
        "the coordinator '{}': what follows the / must be the name of one of its runs: 1 to 64 "
        "letters, digits, '-', '_' or '.'",
        text));
  }
  return wanted;
}

}  // namespace

JoinOptions with_name(JoinOptions options, const std::filesystem::path& run_folder) {
  const auto file = run_folder / "name";
  const std::string saved =
      run::was_started(run_folder) && std::filesystem::exists(file) ? read_file(file) : "";
  if (options.name.empty()) {
    options.name = saved.empty() ? "island-" + random_name().substr(0, 6) : saved;
  }
  if (!saved.empty() && saved != options.name) {
    throw UsageError(
        fmt::format("the island in '{}' is called '{}', not '{}'; leave --name out or "
                    "choose another --run",
                    run_folder.string(), saved, options.name));
  }
  return options;
}

std::unique_ptr<collective::Session> connect(const JoinOptions& options, const Clock& clock,
                                             const EventSink& events) {
  run::RunConfig asked;
  const auto demands = demands_of(options, asked);
  const WantedRun wanted = wanted_run(options.coordinator);
  net::require_address("--listen", options.listen);
  const auto reachable = net::check_address(wanted.address, options.insecure);
  if (!reachable) throw InputError(reachable.error().message);
  const auto listen = net::check_address(options.listen, options.insecure);
  if (!listen) throw InputError(listen.error().message);
  if (net::is_loopback(*listen) && !net::is_loopback(*reachable)) {
    throw UsageError(
        fmt::format("the coordinator '{}' is on another machine, whose islands cannot reach {}; "
                    "say where they reach this one: --listen ADDRESS:0",
                    wanted.address, options.listen));
  }
  events(run::CoordinatorSought{.coordinator = options.coordinator,
                                .patience_s = asked.swarm.join_patience});
  auto session = collective::Session::connect(
      {.coordinator = wanted.address,
       .run_name = wanted.name,
       .listen = options.listen,
       .name = options.name,
       .settings = demands,
       .connect_patience = duration_of(asked.swarm.join_patience),
       .return_patience = duration_of(asked.swarm.return_patience),
       .work_share = asked.sync.exchange_share,
       .on_event = events,
       .cancelled = [] { return num_interrupts() > 0 || has_to_leave(); }},
      [&](net::Transport::Sink sink) {
        auto transport = net::make_grpc_transport(
            {.insecure = options.insecure, .link_rate_bits_per_s = options.link_rate_bits_per_s},
            clock, std::move(sink));
        return options.around_transport ? options.around_transport(std::move(transport))
                                        : std::move(transport);
      },
      clock);
  if (!session) throw InputError(session.error().message);
  return std::move(*session);
}

run::RunConfig config_of(const collective::Session& session, const JoinOptions& options) {
  run::RunConfig config;
  SettingList list = config.settings();
  list.apply_toml(session.config_text(), "the coordinator's settings");
  for (const Setting& setting : list.settings()) {
    for (const std::string& assignment : options.overrides) {
      if (setting.local && assignment.starts_with(setting.name() + "=")) {
        list.apply_override(assignment);
      }
    }
  }
  return config;
}

}  // namespace atl::island
