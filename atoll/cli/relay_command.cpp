#include "atoll/cli/relay_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

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
#include "atoll/run/relay_post.h"
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
  std::string invite;
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

Examples:
  atoll invite runs/ours --role relay > relay.txt                where the run was created
  atoll relay @relay.txt --run runs/meeting --advertise meet.example.org:7074
  atoll relay --run runs/meeting --advertise meet.example.org:7074     again, later
  atoll relay --run runs/meeting --rate 200mbit                  of its line, in all)";

/// Becomes the run's relay, where it is not yet. Returns the coordinator's address.
std::string take_place(const RelayArguments& arguments, const Clock& clock, const EventSink& tell) {
  const fs::path folder = arguments.folder;
  if (arguments.invite.empty()) {
    const std::string coordinator = run::joined_coordinator(folder);
    if (!coordinator.empty()) return coordinator;
    throw UsageError(fmt::format(
        "'{}' is the folder of no relay: give an invite (atoll invite RUN --role relay)",
        folder.string()));
  }
  const auto invite = identity::invite_in(arguments.invite);
  if (!invite) throw UsageError(invite.error().message);
  if (invite->role != identity::Role::kRelay) {
    throw UsageError(
        fmt::format("that invite is for a {}: a relay needs one of its own (atoll "
                    "invite RUN --role relay)",
                    identity::name_of(invite->role)));
  }
  if (run::has_come_by(*invite, folder)) return run::joined_coordinator(folder);
  const std::string name = !arguments.name.empty()     ? arguments.name
                           : run::has_identity(folder) ? run::certified_name(folder)
                                                       : run::name_of_run(folder);
  return run::register_by_invite(
      *invite, folder, name, kJoinPatience, clock, [] { return num_interrupts() > 0; }, tell);
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

void relay(RelayArguments arguments) {
  const std::string given = arguments.invite;
  arguments.invite = identity::read_invite_argument(given);
  close_hidden(given);
  net::require_address("--listen", arguments.listen);
  if (!arguments.advertise.empty()) net::require_address("--advertise", arguments.advertise);
  const net::RelayLimits limits{.num_circuits = static_cast<int>(arguments.pairs),
                                .bytes_per_second = bytes_per_s(arguments.rate),
                                .circuit_bytes_per_second = bytes_per_s(arguments.pair_rate)};
  const SystemClock clock;
  watch_interrupts();
  const EventSink tell = [](const Event& event) { run::print_log(event.sentence); };
  run::Certificate certificate(arguments.folder, take_place(arguments, clock, tell), clock, tell);
  const std::string coordinator =
      certificate.seek_coordinator(kJoinPatience, [] { return num_interrupts() > 0; });
  const auto passer = std::make_shared<net::Relay>(limits, clock);
  swarm::Inbox<net::Event> inbox(kMaxQueuedBytes);
  const auto transport = net::make_tcp_transport(
      {.trust = certificate.trust(), .relay = passer}, clock, [&](net::Event event) {
        const auto* received = std::get_if<net::Received>(&event);
        const size_t size = received != nullptr ? received->frame.size() : 0;
        inbox.push(std::move(event), size);
      });
  const auto bound = transport->listen(arguments.listen);
  if (!bound) throw InputError(bound.error().message);
  const std::string address = told_address(arguments, *bound, coordinator);
  run::RelayPost post(
      {.coordinator = coordinator,
       .name = run::certified_name(arguments.folder),
       .address = address,
       .tell = tell,
       .on_revocations = [&](const Bytes& list) { certificate.take_revocations(list); }},
      *transport);
  bool is_told = false;
  Time next_report = clock.now() + kBetweenReports;
  int64_t reported_bytes = 0;
  while (num_interrupts() == 0 && !post.over() && !post.refused()) {
    post.tick(clock.now());
    auto event = inbox.pop(kNap);
    if (event) {
      const auto* opened = std::get_if<net::Opened>(&*event);
      if (opened != nullptr && opened->inbound) {
        transport->close(opened->connection);  // Members meet here, and nobody else.
      } else {
        post.handle(*event, clock.now());
      }
    }
    if (post.is_taken() && !std::exchange(is_told, true)) {
      fmt::print("relaying at {}\n", address);
      std::fflush(stdout);
    }
    if (clock.now() < next_report) continue;
    next_report = clock.now() + kBetweenReports;
    const net::RelayTraffic traffic = passer->traffic();
    if (traffic.bytes != std::exchange(reported_bytes, traffic.bytes)) report(traffic);
  }
  if (post.refused()) throw InputError("the coordinator takes no relay: " + *post.refused());
  if (post.over()) run::print_log(*post.over());
  report(passer->traffic());
}

}  // namespace

void add_relay_command(CLI::App& app) {
  auto* command =
      app.add_subcommand("relay", "A place where islands meet that cannot reach each other");
  auto arguments = std::make_shared<RelayArguments>();
  command->add_option("invite", arguments->invite,
                      "an invite for a relay (\"-\": read from stdin, @FILE: from a file); not "
                      "needed again");
  command->add_option("--run", arguments->folder, "the relay's folder, with its certificate")
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
