#include "atoll/island/island.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/event_log.h"
#include "atoll/base/interrupt.h"
#include "atoll/collective/averager.h"
#include "atoll/island/following.h"
#include "atoll/island/joining.h"
#include "atoll/island/materials.h"
#include "atoll/island/membership.h"
#include "atoll/island/out_of_memory.h"
#include "atoll/island/training_run.h"
#include "atoll/model/torch_error.h"
#include "atoll/run/events.h"
#include "atoll/run/own_share.h"
#include "atoll/run/run_folder.h"
#include "atoll/weights/checkpoint.h"

namespace atl::island {
namespace {

/// The checkpoint to go on from, if there is one.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& folder,
                                                       const run::InitialModel& init) {
  const auto checkpoints = weights::list_checkpoints(folder / "checkpoints");
  if (checkpoints.empty()) return std::nullopt;
  if (init.given()) {
    throw UsageError(
        fmt::format("--init starts a run, and '{}' has checkpoints to go on from; leave --init "
                    "out or choose another --run",
                    folder.string()));
  }
  return checkpoints.back().second;
}

/// LibTorch's errors without their page of stack.
run::Summary without_backtrace(const std::function<run::Summary()>& train) {
  try {
    return train();
  } catch (const OutOfMemory& error) {
    throw InputError(outside_of_passes(error.what()));
  } catch (const c10::Error& error) {
    throw InputError(reason_of(error));
  }
}

/// Who looks into the folder later finds there why training ended; the other processes hear it.
run::Summary with_reason_kept(EventLog& events, group::Processes* processes,
                              const std::function<run::Summary()>& train) {
  try {
    return without_backtrace(train);
  } catch (const std::exception& error) {
    events.keep(run::IslandFailed{error.what()});
    if (processes != nullptr) processes->fail(error.what());
    throw;
  }
}

run::Summary value_of(Result<run::Summary> result, const std::filesystem::path& folder) {
  if (result) return *result;
  const auto checkpoints = weights::list_checkpoints(folder / "checkpoints");
  throw InputError(fmt::format(
      "{}; {}", result.error().message,
      checkpoints.empty()
          ? std::string("there is no checkpoint yet")
          : fmt::format("the last checkpoint is {}", checkpoints.back().second.string())));
}

run::Summary train_alone_here(const run::RunConfig& given, const std::filesystem::path& folder,
                              const run::InitialModel& init, const FindServers& find_servers,
                              const Clock& clock, const ProgressCallback& on_progress,
                              const EventSink& events, group::Processes* processes) {
  run::RunConfig config = given;
  if (processes != nullptr) run::take_own_share(config.train, processes->place());
  const auto checkpoint = newest_checkpoint(folder, init);
  Materials materials = gather(config, folder, init, find_servers, events, place_of(processes));
  collective::Alone alone;
  if (config.sync.codec == "auto") config.sync.codec = "fp32";  // Nobody to send to.
  TrainingRun run({.config = config,
                   .folder = folder,
                   .materials = materials,
                   .averager = alone,
                   .clock = clock,
                   .processes = processes,
                   .wishes = {.interrupted = [] { return num_interrupts() > 0; }},
                   .on_progress = on_progress,
                   .events = events});
  if (checkpoint) run.resume(*checkpoint);
  try {
    return value_of(run.train(), folder);
  } catch (const Interrupted& interrupted) {
    if (weights::list_checkpoints(folder / "checkpoints").empty()) throw;
    throw Interrupted(
        fmt::format("{}; resume: {}", interrupted.what(), run::resume_command(folder, 1)));
  }
}

run::Summary join_run_here(const JoinOptions& options, const run::RunFolder& folder,
                           const Clock& clock, const ProgressCallback& on_progress,
                           const EventSink& events) {
  newest_checkpoint(folder.path(), options.init);
  const Destination destination = find_destination(options, folder.path(), clock, events);
  return value_of(take_part(destination, folder, clock, on_progress, events), folder.path());
}

}  // namespace

run::Summary train_alone(const run::RunConfig& config, const std::filesystem::path& folder,
                         const run::InitialModel& init, const FindServers& find_servers,
                         const Clock& clock, const ProgressCallback& on_progress,
                         group::Processes* processes) {
  EventLog events(folder);
  return with_reason_kept(events, processes, [&] {
    return train_alone_here(config, folder, init, find_servers, clock, on_progress, events.sink(),
                            processes);
  });
}

run::Summary join_run(const JoinOptions& options, const Clock& clock,
                      const ProgressCallback& on_progress) {
  const run::RunFolder folder(options.folder);
  EventLog events(folder.path());
  return with_reason_kept(events, options.processes, [&] {
    return join_run_here(options, folder, clock, on_progress, events.sink());
  });
}

}  // namespace atl::island
