#include "atoll/island/joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/random.h"
#include "atoll/base/settings.h"
#include "atoll/identity/invite.h"
#include "atoll/net/address.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/run/events.h"
#include "atoll/run/run_authority.h"
#include "atoll/run/run_folder.h"
#include "atoll/swarm/rules.h"

namespace atl::island {
namespace {

constexpr Duration kForLastTry = std::chrono::seconds(1);
/// Pairs of others that may meet at an island at once.
constexpr int kMostPassedOn = 32;
constexpr int kMostOfOneMember = 8;

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

bool is_cancelled() { return num_interrupts() > 0 || has_to_leave(); }

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

/// Where this island listens: as the user says, else where the coordinator's machine sees it.
std::string listening_address(const JoinOptions& options, const net::Address& coordinator) {
  if (options.listen.empty()) {
    const std::string host = net::host_towards(coordinator);
    return net::Address{.host = host.empty() ? "127.0.0.1" : host, .port = 0}.text();
  }
  net::require_address("--listen", options.listen);
  const auto listen = net::parse_address(options.listen);
  if (net::is_loopback(*listen) && !net::is_loopback(coordinator)) {
    throw UsageError(
        fmt::format("the coordinator '{}' is on another machine, whose islands cannot reach {}; "
                    "say where they reach this one: --listen ADDRESS:0",
                    coordinator.text(), options.listen));
  }
  if (net::is_any_host(listen->host) && options.advertise.empty()) {
    throw UsageError(fmt::format(
        "{} is no address that others can go to: say which is, with --advertise HOST:PORT",
        options.listen));
  }
  return options.listen;
}

/// Throws where what it follows from may not be used.
std::string listening_address_for(const WantedRun& wanted, const JoinOptions& options,
                                  bool may_leave_machine) {
  const auto reachable = net::check_address(wanted.address, may_leave_machine);
  if (!reachable) throw InputError(reachable.error().message);
  std::string listen = listening_address(options, *reachable);
  if (const auto checked = net::check_address(listen, may_leave_machine); !checked) {
    throw InputError(checked.error().message);
  }
  return listen;
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

Destination find_destination(JoinOptions options, const std::filesystem::path& run_folder,
                             const Clock& clock, const EventSink& events) {
  const bool is_member = run::has_identity(run_folder);
  const bool has_invite = identity::is_invite_word(options.coordinator);
  if (is_member) {
    const std::string name = run::certified_peer(run_folder).name;
    if (!options.name.empty() && options.name != name) {
      throw UsageError(fmt::format("the certificate in '{}' is that of '{}', not of '{}'",
                                   run_folder.string(), name, options.name));
    }
    options.name = name;
  }
  options = with_name(std::move(options), run_folder);
  if (has_invite) {
    const auto invite = identity::invite_in(options.coordinator);
    if (!invite) throw UsageError(invite.error().message);
    if (is_member && run::has_come_by(*invite, run_folder)) {
      options.coordinator = run::joined_coordinator(run_folder);
    } else {
      run::RunConfig asked;
      demands_of(options, asked);
      events(run::CoordinatorSought{.coordinator = invite->addresses.front(),
                                    .patience_s = asked.swarm.join_patience});
      options.coordinator = run::register_by_invite(*invite, run_folder, options.name,
                                                    duration_of(asked.swarm.join_patience), clock,
                                                    is_cancelled, events);
    }
  } else if (options.coordinator.empty()) {
    options.coordinator = run::joined_coordinator(run_folder);
    if (options.coordinator.empty()) {
      throw UsageError(
          fmt::format("which coordinator? '{}' joined none before: give its address, or an invite",
                      run_folder.string()));
    }
  }
  Destination destination{.options = std::move(options)};
  if (run::has_identity(run_folder)) {
    destination.certificate = std::make_unique<run::Certificate>(
        run_folder, wanted_run(destination.options.coordinator).address, clock, events);
  }
  return destination;
}

std::unique_ptr<collective::Session> connect(const Destination& destination, const Clock& clock,
                                             const EventSink& events) {
  const JoinOptions& options = destination.options;
  run::Certificate* const certificate = destination.certificate.get();
  run::RunConfig asked;
  const auto demands = demands_of(options, asked);
  WantedRun wanted = wanted_run(options.coordinator);
  const bool may_leave_machine = options.insecure || certificate != nullptr;
  std::string listen = listening_address_for(wanted, options, may_leave_machine);
  if (!options.advertise.empty()) net::require_address("--advertise", options.advertise);
  events(run::CoordinatorSought{.coordinator = options.coordinator,
                                .patience_s = asked.swarm.join_patience});
  const Duration patience = duration_of(asked.swarm.join_patience);
  const Time begin = clock.now();
  if (certificate != nullptr) {
    wanted.address = certificate->seek_coordinator(patience, is_cancelled);
    listen = listening_address_for(wanted, options, may_leave_machine);
  }
  // Where it was sought in vain, the session says why.
  const Duration rest = std::max(patience - (clock.now() - begin), std::min(patience, kForLastTry));
  const auto relay = std::make_shared<net::Relay>(
      net::RelayLimits{.num_circuits = kMostPassedOn,
                       .circuits_per_member = kMostOfOneMember,
                       .only_expected = true,
                       .bytes_per_second = options.link_rate_bits_per_s / 8},
      clock);
  auto session = collective::Session::connect(
      {.coordinator = wanted.address,
       .run_name = wanted.name,
       .listen = listen,
       .advertise = options.advertise,
       .name = options.name,
       .settings = demands,
       .connect_patience = rest,
       .return_patience = duration_of(asked.swarm.return_patience),
       .work_share = asked.sync.exchange_share,
       .on_event = events,
       .on_revocations =
           [certificate](const Bytes& signed_list) {
             if (certificate != nullptr) certificate->take_revocations(signed_list);
           },
       .on_circuit = [relay](const net::CircuitId& circuit) { relay->expect(circuit); },
       .cancelled = is_cancelled},
      [&](net::Transport::Sink sink) {
        auto transport = net::make_tcp_transport(
            {.trust = certificate == nullptr ? nullptr : certificate->trust(),
             .insecure = options.insecure,
             .link_rate_bits_per_s = options.link_rate_bits_per_s,
             .relay = relay},
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
