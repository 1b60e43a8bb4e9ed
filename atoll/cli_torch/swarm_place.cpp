#include "atoll/cli_torch/swarm_place.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/event.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/random.h"
#include "atoll/cli/command_line.h"
#include "atoll/identity/invite.h"
#include "atoll/net/address.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/run/run_authority.h"
#include "atoll/swarm/rules.h"

namespace atl::cli {
namespace {

constexpr Duration kPatience = std::chrono::minutes(1);

bool is_cancelled() { return num_interrupts() > 0; }

void tell(const Event& event) { print_note(event.sentence); }

/// Where the coordinator is, after it has let this machine in where that is needed.
std::string coordinator_of(const SwarmArguments& arguments, identity::Role role,
                           const std::string& name, const Clock& clock) {
  if (identity::is_invite_word(arguments.join)) {
    const auto invite = identity::invite_in(arguments.join);
    if (!invite) throw UsageError(invite.error().message);
    if (invite->role != role) {
      throw UsageError(fmt::format(
          "that invite is for a {}: a {} needs one of its own (atoll "
          "invite RUN --role {})",
          identity::name_of(invite->role), identity::name_of(role), identity::name_of(role)));
    }
    if (arguments.folder.empty()) {
      throw UsageError("--run FOLDER is where the certificate is kept that the invite brings");
    }
    return run::come_by_invite(*invite, arguments.folder, name, kPatience, clock, is_cancelled,
                               tell);
  }
  if (!arguments.join.empty()) {
    net::require_address(arguments.option, arguments.join);
    return arguments.join;
  }
  const std::string known =
      arguments.folder.empty() ? std::string() : run::joined_coordinator(arguments.folder);
  if (!known.empty()) return known;
  throw UsageError(
      "--join says which swarm: an invite (atoll invite), or HOST:PORT of its "
      "coordinator");
}

}  // namespace

void print_note(const std::string& line) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  fmt::print(stderr, "atoll: {:%H:%M:%S} {}\n", local, line);
}

void add_swarm_arguments(CLI::App& command, SwarmArguments& arguments, identity::Role role) {
  command.add_option("--join", arguments.join,
                     fmt::format("a {}'s invite (\"-\": read from stdin, @FILE: from a file), or "
                                 "HOST:PORT of the coordinator",
                                 identity::name_of(role)));
  command.add_option("--run", arguments.folder,
                     "the folder that keeps its certificate; with one, --join is not needed again");
  command.add_option("--peer-name", arguments.name, "its own, among the others (default: made up)");
}

SwarmPlace::SwarmPlace(const SwarmArguments& given, identity::Role role, const Clock& clock)
    : clock_(clock), insecure_(given.insecure) {
  SwarmArguments arguments = given;
  if (!arguments.join.empty()) {
    arguments.join = invite_said(given.option, given.join);
  }
  if (!arguments.folder.empty()) folder_.emplace(arguments.folder);
  const bool is_member = folder_ && run::has_identity(arguments.folder);
  name_ = arguments.name;
  if (is_member) name_ = run::certified_peer(arguments.folder).name;
  if (name_.empty()) {
    name_ = fmt::format("{}-{}", given.kind.empty() ? identity::name_of(role) : given.kind,
                        random_name().substr(0, 6));
  }
  if (!swarm::is_valid_name(name_)) {
    throw UsageError(
        fmt::format("--peer-name '{}' must be 1 to 64 letters, digits, '-', '_' or '.'", name_));
  }
  if (!arguments.name.empty() && arguments.name != name_) {
    throw UsageError(fmt::format("the certificate in '{}' is that of '{}', not of '{}'",
                                 arguments.folder, name_, arguments.name));
  }
  coordinator_ = coordinator_of(arguments, role, name_, clock);
  if (folder_ && run::has_identity(arguments.folder)) {
    certificate_ = std::make_unique<run::Certificate>(arguments.folder, coordinator_, clock, tell);
    coordinator_ = certificate_->seek_coordinator(kPatience, is_cancelled);
  }
  const auto reachable = net::check_address(coordinator_, insecure_ || certificate_ != nullptr);
  if (!reachable) throw InputError(reachable.error().message);
  print_note(fmt::format("joining the swarm of {} as '{}'", coordinator_, name_));
}

std::unique_ptr<net::Transport> SwarmPlace::make_transport(net::Transport::Sink sink) const {
  return net::make_tcp_transport(
      {.trust = certificate_ == nullptr ? nullptr : certificate_->trust(), .insecure = insecure_},
      clock_, std::move(sink));
}

chain::DirectoryPostOptions SwarmPlace::post_options() const {
  if (certificate_ == nullptr) return {.coordinator = coordinator_, .authority = {}, .tell = tell};
  return {.coordinator = coordinator_,
          .authority = certificate_->trust()->run(),
          .tell = tell,
          .on_revocations = [own = certificate_.get()](const Bytes& signed_list) {
            own->take_revocations(signed_list);
          }};
}

std::string SwarmPlace::listening_address() const {
  const std::string host = net::host_towards(*net::parse_address(coordinator_));
  return net::Address{.host = host.empty() ? "127.0.0.1" : host, .port = 0}.text();
}

void SwarmPlace::require_reachable(const std::string& text) const {
  const auto address = net::parse_address(text);
  const auto coordinator = net::parse_address(coordinator_);
  if (net::is_any_host(address->host)) {
    throw UsageError(fmt::format(
        "{} is no address that others can go to: say which is, with --advertise HOST:PORT", text));
  }
  if (net::is_loopback(*address) && !net::is_loopback(*coordinator)) {
    throw UsageError(fmt::format(
        "the coordinator {} is on another machine, and others there cannot reach {}: say where "
        "they reach this one, with --listen or --advertise",
        coordinator_, text));
  }
}

}  // namespace atl::cli
