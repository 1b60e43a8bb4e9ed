#include "atoll/island/chosen_codec.h"

#include "atoll/base/error.h"
#include "atoll/island/following.h"
#include "atoll/island/link_probe.h"
#include "atoll/island/run_state.h"
#include "atoll/method/auto_choice.h"
#include "atoll/run/events.h"
#include "atoll/train/unit_gradient.h"

namespace atl::island {

method::SyncOptions choose_codec(const TrainingParts& parts, collective::Averager& averager) {
  const method::SyncOptions& options = parts.config.sync;
  Materials& materials = parts.materials;
  const int num_members = averager.num_members();
  const auto leader = make_leader(parts);
  const auto learner = leader ? leader->learner() : make_learner(materials, parts.config.train);
  train::UnitGradient gradient(*learner, materials.mixture, parts.config.train, num_members);
  const double step_seconds = gradient.time(parts.clock);
  const method::Load load = method::load_of(options, materials.trained().specs(), num_members);
  const auto measured = probe_links(averager, parts.rank, step_seconds,
                                    method::most_bytes(options, load), parts.clock);
  if (!measured) throw InputError(measured.error().message);
  const method::Choice choice = method::choose(options, load, *measured);
  parts.events(run::CodecChosen{
      .codec = choice.codec, .delay = choice.delay, .choice = method::describe(choice, *measured)});
  return method::with_choice(options, choice);
}

method::SyncOptions chosen_before(method::SyncOptions options,
                                  const std::filesystem::path& checkpoint) {
  const RunState state = read_run_state(checkpoint);
  options.codec = state.codec;
  options.fragment_sync_delay = state.fragment_sync_delay;
  return options;
}

}  // namespace atl::island
