#include "atoll/coordinator/events.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace atl::swarm {

using fmt::format;

std::string CoordinatorStarted::sentence() const {
  if (step) return format("run {} is at step {} of {}: atoll join {}", run, *step, steps, join);
  return format(
      "run {} waits for {} islands that train it (atoll join {}), or for servers of a model's "
      "layers (atoll serve MODEL --join)",
      run, islands, join);
}

std::string RunContinued::sentence() const {
  return format(
      "back in run '{}', term {}: round {} (step {}) was committed last; waits for {} to return",
      run, term, round, step, fmt::join(islands, ", "));
}

std::string IslandsGathering::sentence() const {
  return format("{} of {} islands are here", ready, wanted);
}

std::string StateAwaited::sentence() const {
  return format(
      "the run was at step {}, and what is here is not enough: {}; it waits for islands that "
      "hold more (to give those up, start the coordinator with another --run)",
      step, newest);
}

std::string StepsVoid::sentence() const {
  return format("nobody holds what was committed after step {}: steps {} to {} are void", step,
                step + 1, last);
}

std::string RunBegun::sentence() const {
  return format("the run begins at step {} with {}", step, fmt::join(islands, ", "));
}

std::string RoundCommitted::sentence() const {
  const std::string without =
      abstainers.empty() ? std::string()
                         : format(", without '{}' (abstained)", fmt::join(abstainers, "', '"));
  return format("round {} committed: step {}, digest {}{}{}", round, step, digest.substr(0, 12),
                without, is_last ? ", stopping" : "");
}

std::string RoundsWait::sentence() const {
  return format(
      "WARNING: rounds wait until more have come: {} of at least {} islands (swarm.min_replicas)",
      live, least);
}

std::string RoundsGoOn::sentence() const {
  return format("rounds go on with {} of at least {} islands", live, least);
}

std::string StopRequested::sentence() const {
  const std::string what = "stopping after the next sync";
  return island ? format("island '{}' asked to stop: {}", *island, what) : what;
}

std::string RunNotBegun::sentence() const {
  return "the coordinator was stopped before islands began to train";
}

std::string RunOver::sentence() const {
  return format("the run is over: step {} is committed", step);
}

std::string RunStopped::sentence() const {
  return format(
      "the run has stopped at step {} of {}; to go on with it, start its coordinator and islands "
      "again with the same run directories",
      step, steps);
}

std::string RunFailed::sentence() const { return "the run ended: " + reason; }

std::string RunStandsStill::sentence() const {
  return format(
      "this run stands still: {}; its islands wait for a coordinator that is started again",
      reason);
}

std::string StrangerRefused::sentence() const { return "a stranger was turned away: " + reason; }

std::string IslandCame::sentence() const {
  return format("island '{}' came from {}", island, address);
}

std::string IslandRefused::sentence() const {
  return format("island '{}' was refused: {}", island, reason);
}

std::string IslandReady::sentence() const { return format("island '{}' is ready", island); }

std::string GuestLeft::sentence() const {
  return format("island '{}' left before it was a member", island);
}

std::string GuestLost::sentence() const {
  return format("island '{}' was lost before it was a member: {}", island, reason);
}

std::string GuestFailed::sentence() const {
  return format("island '{}' cannot go on: {}", island, reason);
}

std::string IslandJoins::sentence() const {
  return format("island '{}' joins at step {}", island, step);
}

std::string IslandCaughtUp::sentence() const {
  return format("island '{}' has caught up: it takes part from round {}", island, round);
}

std::string IslandLost::sentence() const {
  return format("island '{}' was lost: {}; {} of {} islands go on", island, reason, live, members);
}

std::string AllIslandsLost::sentence() const {
  return "no island is left; waiting for islands to come back";
}

std::string RoundMadeAgain::sentence() const {
  return fmt::format("round {} was made again: all islands had lost its result", round);
}

std::string IslandComputesAgain::sentence() const {
  return format(
      "island '{}' is back with what it had: it computes the steps since its checkpoint again",
      island);
}

std::string IslandBack::sentence() const {
  return format("island '{}' is back{}", island, is_anew ? " and joins anew" : "");
}

std::string IslandLeft::sentence() const { return format("island '{}' has left", island); }

std::string IslandRemoved::sentence() const {
  return format("island '{}' is no member any more: {}", island, reason);
}

std::string IslandInTrouble::sentence() const { return format("island '{}': {}", island, reason); }

std::string ProtocolBroken::sentence() const {
  return format("island '{}' broke the protocol: it {}", island, what);
}

std::string IslandLeftOut::sentence() const {
  return format("island '{}' is left out of round {}: {}", island, round, reason);
}

std::string LinkLost::sentence() const {
  return format("islands '{}' and '{}' cannot reach each other: {}", islands.at(0), islands.at(1),
                reason);
}

std::string LinkBack::sentence() const {
  const std::string how = relay.empty()      ? ""
                          : way == "punched" ? format(", directly, since they met at '{}'", relay)
                                             : format(" through '{}'", relay);
  return format("islands '{}' and '{}' reach each other again{}", islands.at(0), islands.at(1),
                how);
}

std::string IslandNotReached::sentence() const {
  return format("island '{}' cannot be called at {}: {}", island, address, reason);
}

std::string RelayCame::sentence() const {
  return format("islands may meet at relay '{}', {}", relay, address);
}

std::string RelayRefused::sentence() const {
  return format("relay '{}' was refused: {}", relay, reason);
}

std::string RelayLost::sentence() const { return format("relay '{}' was lost: {}", relay, reason); }

std::string IslandUnreachable::sentence() const {
  return format("round {} goes on without island '{}': it cannot reach '{}', nor could they meet",
                round, island, other);
}

}  // namespace atl::swarm
