#pragma once
// One replica's run from its first step to its last: the loop, and when what surrounds it is due.
// It knows no algorithm and no network: the strategy and the averager behind it do. What surrounds
// it decides on its own: which rows (run/unit_source.h), what is validated (validation.h), written
// (run/records.h, checkpoints.h), forgiven (run/patience.h), and who may end it (run/stop_rule.h).
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/base/result.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/session.h"
#include "atoll/group/leader.h"
#include "atoll/island/checkpoints.h"
#include "atoll/island/materials.h"
#include "atoll/island/validation.h"
#include "atoll/run/config.h"
#include "atoll/run/diary.h"
#include "atoll/run/patience.h"
#include "atoll/run/progress.h"
#include "atoll/run/records.h"
#include "atoll/run/round_log.h"
#include "atoll/run/stop_rule.h"
#include "atoll/run/time_spent.h"
#include "atoll/run/unit_source.h"
#include "atoll/sync/strategy.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/train/unit_gradient.h"
#include "atoll/weights/checkpoint.h"

namespace atl::island {

/// What a run is made of. References outlive it.
struct TrainingParts {
  run::RunConfig config;
  std::filesystem::path folder;  // The run directory, e.g. of this island.
  Materials& materials;
  collective::Averager& averager;
  int rank = 0;  // Of this replica among averager.num_members().
  const Clock& clock;
  std::string pace = "lockstep";  // swarm.pace.
  group::Processes* processes =
      nullptr;  // Of this island, which this one leads; null: it is alone.
  /// The unit of data to train on next (run/unit_source.h). May be empty.
  std::function<Result<int64_t>()> next_unit;
  run::RoundLog* round_log = nullptr;  // Where committed rounds are kept; may be null.
  run::Diary* diary = nullptr;  // What this island does; may be null, and is in elastic pace.
  run::StopWishes wishes;
  /// Called after each step, on the training thread. May be empty.
  std::function<void(const collective::ProgressReport&)> on_step;
  /// Called at each log line, on the training thread. May be empty.
  std::function<void(const run::Progress&)> on_progress;
  EventSink events = [](const Event&) {};
};

class TrainingRun {
 public:
  explicit TrainingRun(TrainingParts parts);
  /// Continues from a checkpoint of this run, and from the rounds that were committed after it.
  /// Throws InputError when one of them is damaged or of another model.
  void resume(const std::filesystem::path& checkpoint,
              std::span<const run::LoggedRound> rounds = {});
  /// After resume() of a checkpoint alone: takes the steps behind it again, while `has_left()`, as
  /// they were taken before. Nothing is written meanwhile. Fails where something is not as it was;
  /// then this object is of no further use.
  [[nodiscard]] Result<void> compute_again(const std::function<bool()>& has_left);
  /// Units that this island has trained on as the member that it is; before resume().
  void set_trained(int64_t units) { units_.set_trained(units); }
  int64_t step() const { return step_; }
  /// Begins in the middle of a run, at `step`: `fetch` brings the state of a fragment, of so many
  /// bytes. Throws UsageError if the method takes no newcomers.
  [[nodiscard]] Result<void> join(
      int64_t step,
      const std::function<Result<collective::FetchedState>(int32_t fragment, size_t size)>& fetch);
  /// Trains to the last step, or to the agreed stop. A failure means that a peer was lost; the
  /// checkpoints on disk stay valid. Throws Interrupted where its user ends it in the midst of a
  /// step that cannot be finished: who trains alone has kept the one before.
  [[nodiscard]] Result<run::Summary> train();

 private:
  void replay(std::span<const run::LoggedRound> rounds);
  void begin();
  Result<run::Summary> train_to_the_end();
  Result<void> train_step();
  /// Forward, backward and the inner optimiser's update, of the next unit.
  Result<void> update();
  Result<void> catch_up();
  void take_rounds();
  /// The other processes of this island get what the strategy made of the parameters.
  void follow_strategy();
  /// The published parameters are those of a step that all islands keep.
  bool keeps_now() const;
  /// The step of a coming checkpoint that holds as much as any: live.* too, if one of them does.
  int64_t fullest_checkpoint() const;
  void checkpoint();
  [[noreturn]] void give_up(const std::string& reason);
  weights::CheckpointContents contents(int64_t step);
  void evaluate_and_report(int64_t before);
  run::Progress progress() const;
  run::Summary summary(bool stopped) const;
  /// That this process has trained on.
  double own_tokens() const;

  const TrainingParts parts_;
  run::TimeSpent time_;
  run::UnitSource units_;
  run::Patience patience_;
  run::StopRule stop_;
  run::Records records_;
  const std::unique_ptr<group::Leader> leader_;  // Of several processes; null: there is one.
  const std::unique_ptr<train::Learner> learner_;
  train::UnitGradient gradient_;
  Validation validation_;
  std::unique_ptr<train::InnerOptimizer> optimizer_;
  std::unique_ptr<sync::Strategy> strategy_;
  Checkpoints checkpoints_;  // Its thread reads what is above.

  int64_t num_changes_ = 0;    // Of the parameters by the strategy, that others know of.
  int64_t step_ = 0;           // Optimiser steps done.
  int64_t first_step_ = 0;     // From which on this process has trained; see catch_up().
  int64_t began_at_ = 0;       // The step before the first one of this process.
  bool is_whole_ = true;       // All that belongs to step_ was done.
  bool has_synced_ = false;    // With the last step.
  bool has_joined_ = false;    // In the middle of the run.
  bool is_at_commit_ = false;  // RunState::at_commit; the first checkpoint is of that.
  double loss_ = 0;            // Of the last step, as are the next two.
  double grad_norm_ = 0;
  double learning_rate_ = 0;
};

}  // namespace atl::island
