#include "atoll/cli/plan_line.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/cli/command_line.h"
#include "atoll/identity/invite.h"
#include "atoll/net/address.h"
#include "atoll/net/tcp_transport.h"
#include "atoll/run/registration.h"
#include "atoll/run/run_authority.h"

namespace atl::cli {
namespace {

constexpr Duration kPatience = std::chrono::minutes(1);

bool is_interrupted() { return num_interrupts() > 0; }

void tell(const Event& event) { fmt::print(stderr, "atoll: {}\n", event.sentence); }

bool is_invite(const std::string& word) {
  return word == "-" || word.starts_with('@') || identity::is_invite_word(word);
}

/// The address of the coordinator whose member is, or becomes one now, in the folder.
std::string come_in(const LineOptions& options, const std::string& name, const Clock& clock) {
  if (is_invite(options.coordinator)) {
    const auto invite = identity::invite_in(identity::read_invite_argument(options.coordinator));
    if (!invite) throw UsageError("--coordinator: " + invite.error().message);
    return run::come_by_invite(*invite, options.run, name, kPatience, clock, is_interrupted, tell);
  }
  if (!run::has_identity(options.run)) {
    throw UsageError(fmt::format(
        "--run: nobody in '{}' is a member of an encrypted run: give an invite with --coordinator",
        options.run));
  }
  const std::string address =
      options.coordinator.empty() ? run::joined_coordinator(options.run) : options.coordinator;
  net::require_address("--coordinator", address);
  return address;
}

swarm::MeasuredLink measure(const std::string& coordinator, const net::TransportOptions& transport,
                            const Clock& clock) {
  ProgressBar bar("measuring the line", 0, clock);
  const auto link = swarm::measure_link(
      coordinator,
      [&](net::Transport::Sink sink) {
        return net::make_tcp_transport(transport, clock, std::move(sink));
      },
      clock, is_interrupted);
  throw_if_interrupted();
  if (!link) throw InputError("--coordinator: " + link.error().message);
  return *link;
}

}  // namespace

std::optional<swarm::MeasuredLink> measure_line(const LineOptions& options, const std::string& name,
                                                const Clock& clock) {
  if (!options.run.empty()) {
    if (options.insecure) throw UsageError("--insecure: members of a run are encrypted (--run)");
    run::Certificate certificate(options.run, come_in(options, name, clock), clock, tell);
    return measure(certificate.seek_coordinator(kPatience, is_interrupted),
                   {.trust = certificate.trust()}, clock);
  }
  if (options.coordinator.empty()) return std::nullopt;
  if (is_invite(options.coordinator)) {
    throw UsageError("--coordinator: by an invite this machine becomes a member, in --run FOLDER");
  }
  const auto address = net::check_address(options.coordinator, options.insecure);
  if (!address) throw UsageError("--coordinator: " + address.error().message);
  if (options.insecure) warn_insecure();
  return measure(options.coordinator, {.insecure = options.insecure}, clock);
}

}  // namespace atl::cli
