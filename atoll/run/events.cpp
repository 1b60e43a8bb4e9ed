#include "atoll/run/events.h"

#include <fmt/format.h>

#include "atoll/base/progress.h"
#include "atoll/swarm/unanswered.h"

namespace atl::run {

using fmt::format;

std::string under(const std::vector<std::string>& causes) {
  std::string lines;
  for (const std::string& cause : causes) lines += "\n  " + cause;
  return lines;
}

std::string CoordinatorSought::sentence() const {
  return format("looking for the coordinator at {}, for {} at most (swarm.join_patience)",
                coordinator, format_duration(patience_s));
}

std::string CoordinatorUnanswered::sentence() const { return swarm::nobody_answers(coordinator); }

std::string RelayTaken::sentence() const {
  return format("members of the run at {} may meet at {}", coordinator, address);
}

std::string CoordinatorMissed::sentence() const {
  return format("the coordinator is away: {}; it is tried again", reason);
}

std::string CertificateNotRenewed::sentence() const {
  return format("warning: this island's certificate was not renewed: {}; it is tried again{}",
                reason, until.empty() ? "" : format(", and it is good until {}", until));
}

std::string CoordinatorFound::sentence() const {
  return format("nobody answers at {}; the coordinator of run {} answers on this LAN at {}", known,
                authority.substr(0, 16), coordinator);
}

std::string CameAs::sentence() const { return format("came as '{}'", island); }

std::string CodecChosen::sentence() const { return "sync.codec = auto: " + choice; }

std::string StateWanted::sentence() const {
  return format("the run is at step {}: getting its state from the other islands", step);
}

std::string StateTaken::sentence() const { return "the state is here and is the committed one"; }

std::string RoundsReplayed::sentence() const {
  return format("step {} is checkpoint '{}' and {} rounds after it", step, checkpoint, rounds);
}

std::string StepsComputedAgain::sentence() const {
  return format(
      "computing {} steps after checkpoint '{}' again, with the results of {} rounds from disk",
      steps, checkpoint, rounds);
}

std::string NotComputedAgain::sentence() const {
  return format("warning: {}; going on from the newest commit", reason);
}

std::string RoundComputedOtherwise::sentence() const {
  return format(
      "warning: what this island computes for round {} is not what it was (another processor?)",
      round);
}

std::string MoreCheckpointsKept::sentence() const {
  return format(
      "the last {} checkpoints are kept, not {} (train.keep_checkpoints): islands that were some "
      "rounds apart must have one in common",
      kept, asked);
}

std::string CheckpointVoid::sentence() const {
  return format(
      "the run is at step {}; the checkpoint of step {} is not of it any more and renamed to "
      "step-{:08}.void",
      step, void_step, void_step);
}

std::string WeightsNotFinite::sentence() const { return format("warning: '{}': {}", model, what); }

std::string StepLeftOut::sentence() const {
  return format("warning: the {} at step {}: this island's part is left out, with weight 0", what,
                step);
}

std::string PartLeftOut::what() const {
  return format("this island's part of round {} was left out, with weight 0: {}", round, reason);
}

std::string RecordsNotKept::sentence() const {
  return format("warning: {} can no longer be written (disk full?)", file);
}

std::string StopWanted::sentence() const {
  return "stopping after the next sync (Ctrl-C again: end now)";
}

std::string IslandProcessLost::sentence() const {
  return format("{} is lost, the others go on:\n  {}\n  to bring it back: {}", island, cause,
                command);
}

std::string IslandProcessKilled::sentence() const {
  const std::string how = signal > 0 ? format("killed by signal {}", signal)
                                     : std::string("one of its processes was lost");
  return format("{}: {} after step {}; the others {}, and it is started again in {} s", island, how,
                step, others_go_on ? "go on" : "wait for it", pause_s);
}

std::string IslandProcessBack::sentence() const {
  return format("{} is back and trains, {:.1f} s after it was killed", island, away_s);
}

std::string CoordinatorRestarted::sentence() const {
  return format("the coordinator was lost and is started again:\n  {}", cause);
}

std::string RunEndsEarly::sentence() const {
  return "the run ends early, waiting for the others:" + under(causes);
}

std::string IslandEndedBefore::sentence() const {
  return format("{} had left at step {}; the others went on to step {}", island, step, last);
}

}  // namespace atl::run
