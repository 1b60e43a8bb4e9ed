#include "atoll/cli/relay_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/base/quantity.h"
#include "atoll/cli/command_line.h"
#include "atoll/cli/whole_number.h"
#include "atoll/identity/invite.h"
#include "atoll/net/address.h"
#include "atoll/net/relay.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/run/coordinated_run.h"
#include "atoll/run/link_rate.h"
#include "atoll/run/registration.h"
#include "atoll/run/relay_folder.h"
#include "atoll/run/relayed_run.h"
#include "atoll/run/run_authority.h"
#include "atoll/run/run_folder.h"
#include "atoll/swarm/inbox.h"

namespace atl::cli {
namespace {

namespace fs = std::filesystem;

constexpr Duration kJoinPatience = std::chrono::minutes(1);
constexpr Duration kNap = std::chrono::milliseconds(200);
constexpr Duration kBetweenReports = std::chrono::minutes(1);
constexpr size_t kMaxQueuedBytes = size_t{16} << 20;

struct RelayArguments {
  std::vector<std::string> invites;
  std::string folder;
  std::string name;
  std::string listen = "0.0.0.0:7074";
  std::string advertise;
  std::string rate;
  std::string pair_rate;
  int64_t pairs = 256;
};

constexpr const char* kFooter = R"(
Islands of a run that cannot reach each other, as both are behind routers that let nobody in, meet
here. First they try to reach each other directly through their routers; where that fails the relay
passes on what they say. It cannot read it: it is encrypted between the two. Only members of the
run get in. Run it on any machine that all islands reach; the coordinator tells them of it. It may
be killed at any time: who used it meets at another one, or waits.

It may serve several runs: it takes an invite to each, now or later, and keeps all memberships in
its folder. Members of one run never meet those of another; --rate and --pairs hold over all.

Examples:
  atoll invite runs/ours --role relay > relay.txt                where the run was created
  atoll relay @relay.txt --run runs/meeting --advertise meet.example.org:7074
  atoll relay --run runs/meeting --advertise meet.example.org:7074     again, later
  atoll relay --run runs/meeting --rate 200mbit                  of its line, in all
  atoll relay @theirs.txt --run runs/meeting                     another run as well)";

identity::Invite relay_invite(const std::string& word) {
  const auto invite = identity::invite_in(word);
  if (!invite) throw UsageError(invite.error().message);
  if (invite->role == identity::Role::kRelay) return *invite;
  throw UsageError(
      fmt::format("that invite is for a {}: a relay needs one of its own (atoll invite RUN --role "
                  "relay)",
                  identity::name_of(invite->role)));
}

/// The runs that it serves, and why it does not serve others that it was given.
struct Served {
  bool is_only = true;  // There are no others to be told from.
  std::list<run::RelayedRun> runs;
  std::vector<std::string> failures;
};

/// What happens in one of several runs is told with that run's name.
EventSink teller(bool is_only, const std::string& fingerprint) {
  return [prefix = is_only ? "" : fmt::format("[{}] ", run::short_run(fingerprint))](
             const Event& event) { run::print_log(prefix + event.sentence); };
}

/// Where there are several, one that cannot be had leaves the others alone.
template <typename Do>
void attempt(const std::string& fingerprint, Served& served, Do&& what) {
  try {
    what();
  } catch (const InputError& error) {
    if (served.is_only) throw;
    served.failures.push_back(fmt::format("{}: {}", run::short_run(fingerprint), error.what()));
    run::print_log("not served: " + served.failures.back());
  }
}

/// Becomes the relay of each run that it is invited to, where it is not yet.
Served take_places(const RelayArguments& arguments, const Clock& clock) {
  const fs::path folder = arguments.folder;
  Served served;
  std::vector<identity::Invite> invites;
  std::set<std::string> known;
  for (const std::string& word : arguments.invites) {
    invites.push_back(relay_invite(word));
    if (known.insert(invites.back().fingerprint).second) continue;
    throw UsageError("two of these invites are to one run: give one of them");
  }
  for (const fs::path& place : run::memberships_in(folder)) {
    known.insert(run::certified_peer(place).run);
  }
  if (known.empty()) {
    throw UsageError(fmt::format(
        "'{}' is the folder of no relay: give an invite (atoll invite RUN --role relay)",
        folder.string()));
  }
  served.is_only = known.size() == 1;
  for (const identity::Invite& invite : invites) {
    attempt(invite.fingerprint, served, [&] {
      const fs::path place = run::membership_of(folder, invite.fingerprint);
      const std::string name = !arguments.name.empty()    ? arguments.name
                               : run::has_identity(place) ? run::certified_peer(place).name
                                                          : run::name_of_run(folder);
      run::come_by_invite(
          invite, place, name, kJoinPatience, clock, [] { return num_interrupts() > 0; },
          teller(served.is_only, invite.fingerprint));
    });
  }
  for (const fs::path& place : run::memberships_in(folder)) {
    const std::string fingerprint = run::certified_peer(place).run;
    attempt(fingerprint, served,
            [&] { served.runs.emplace_back(place, clock, teller(served.is_only, fingerprint)); });
  }
  return served;
}

/// Where members are told that the relay is: as the user says, else as the coordinator's machine
/// sees this one.
std::string told_address(const RelayArguments& arguments, const std::string& bound,
                         const std::string& coordinator) {
  if (!arguments.advertise.empty()) return arguments.advertise;
  net::Address address = *net::parse_address(bound);
  if (!net::is_any_host(address.host)) return bound;
  address.host = net::host_towards(*net::parse_address(coordinator));
  if (!address.host.empty()) return address.text();
  throw UsageError("how do members reach this machine? Say it with --advertise HOST:PORT");
}

void report(const net::RelayTraffic& traffic) {
  run::print_log(fmt::format("{} pairs, {} since it began; {} passed on", traffic.num_circuits,
                             traffic.num_circuits_ever,
                             format_bytes(static_cast<double>(traffic.bytes))));
}

double bytes_per_s(const std::string& rate) {
  return rate.empty() ? 0 : run::parse_link_rate(rate) / 8;
}

/// Those that are at their end are told of, and no more.
void forget_ended(Served& served) {
  std::erase_if(served.runs, [&](const run::RelayedRun& run) {
    const auto end = run.end();
    if (!end) return false;
    const std::string prefix =
        served.is_only ? "" : fmt::format("{}: ", run::short_run(run.trust()->run()));
    if (*end) {
      run::print_log(prefix + **end);
    } else {
      served.failures.push_back(prefix + "the coordinator takes no relay: " + end->error().message);
      if (!served.is_only) run::print_log(served.failures.back());
    }
    return true;
  });
}

void relay(RelayArguments arguments) {
  for (std::string& word : arguments.invites) {
    const std::string given = std::exchange(word, identity::read_invite_argument(word));
    close_hidden(given);
  }
  net::require_address("--listen", arguments.listen);
  if (!arguments.advertise.empty()) net::require_address("--advertise", arguments.advertise);
  const net::RelayLimits limits{.num_circuits = static_cast<int>(arguments.pairs),
                                .bytes_per_second = bytes_per_s(arguments.rate),
                                .circuit_bytes_per_second = bytes_per_s(arguments.pair_rate)};
  const SystemClock clock;
  watch_interrupts();
  Served served = take_places(arguments, clock);
  net::TransportOptions options{.relay = std::make_shared<net::Relay>(limits, clock)};
  for (run::RelayedRun& run : served.runs) {
    if (options.trust) {
      options.more_trusts.push_back(run.trust());
    } else {
      options.trust = run.trust();
    }
  }
  if (!options.trust) throw InputError("no run can be served");
  swarm::Inbox<net::Event> inbox(kMaxQueuedBytes);
  const auto passer = options.relay;
  const auto transport = net::make_tcp_transport(std::move(options), clock, [&](net::Event event) {
    const size_t size = net::frame_bytes(event);
    inbox.push(std::move(event), size);
  });
  const auto bound = transport->listen(arguments.listen);
  if (!bound) throw InputError(bound.error().message);
  for (run::RelayedRun& run : served.runs) {
    run.seek(kJoinPatience, [] { return num_interrupts() > 0; });
  }
  bool is_told = false;
  Time next_report = clock.now() + kBetweenReports;
  int64_t reported_bytes = 0;
  while (num_interrupts() == 0 && !served.runs.empty()) {
    for (run::RelayedRun& run : served.runs) {
      run.tick(*transport, clock.now(), [&](const std::string& coordinator) {
        return told_address(arguments, *bound, coordinator);
      });
    }
    if (const auto event = inbox.pop(kNap)) {
      const auto* opened = std::get_if<net::Opened>(&*event);
      if (opened != nullptr && opened->inbound) {
        transport->close(opened->connection);  // Members meet here, and nobody else.
      } else {
        for (run::RelayedRun& run : served.runs) run.handle(*event, clock.now());
      }
    }
    for (const run::RelayedRun& run : served.runs) {
      const std::string address = run.taken_at();
      if (address.empty() || std::exchange(is_told, true)) continue;
      fmt::print("relaying at {}\n", address);
      std::fflush(stdout);
    }
    forget_ended(served);
    if (clock.now() < next_report) continue;
    next_report = clock.now() + kBetweenReports;
    const net::RelayTraffic traffic = passer->traffic();
    if (traffic.bytes != std::exchange(reported_bytes, traffic.bytes)) report(traffic);
  }
  report(passer->traffic());
  if (!served.failures.empty())
    throw InputError(fmt::format("{}", fmt::join(served.failures, "; ")));
}

}  // namespace

void add_relay_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("relay", "A place where islands meet that cannot reach each other");
  auto arguments = std::make_shared<RelayArguments>();
  command->add_option("invite", arguments->invites,
                      "an invite for a relay (\"-\": read from stdin, @FILE: from a file), or one "
                      "to each of several runs; not needed again");
  command->add_option("--run", arguments->folder, "the relay's folder, with its certificates")
      ->required();
  command->add_option("--name", arguments->name, "its name (default: the last part of --run)");
  command->add_option("--listen", arguments->listen, "HOST:PORT")->capture_default_str();
  command->add_option("--advertise", arguments->advertise,
                      "HOST:PORT where islands reach it (default: as the coordinator sees this "
                      "machine)");
  command->add_option("--rate", arguments->rate, "pass on no more than that, e.g. 200mbit");
  command->add_option("--pair-rate", arguments->pair_rate, "the same, of each pair");
  command->add_option("--pairs", arguments->pairs, "connections that it carries at once")
      ->check(whole_number<int>(1, 100'000))
      ->capture_default_str();
  command->footer(kFooter);
  command->callback([arguments] { relay(*arguments); });
}

}  // namespace atl::cli
