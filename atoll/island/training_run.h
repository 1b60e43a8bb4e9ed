#pragma once
// One replica's run from its first step to its last: the loop, and what surrounds it (validation,
// progress, records, checkpoints). It knows no algorithm and no network: the strategy and the
// averager behind it do.
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/error.h"
#include "atoll/base/event.h"
#include "atoll/collective/averager.h"
#include "atoll/collective/session.h"
#include "atoll/data/batches.h"
#include "atoll/data/mixture.h"
#include "atoll/model/model.h"
#include "atoll/run/config.h"
#include "atoll/run/diary.h"
#include "atoll/run/initial_model.h"
#include "atoll/run/metrics.h"
#include "atoll/run/progress.h"
#include "atoll/run/round_log.h"
#include "atoll/sync/strategy.h"
#include "atoll/train/inner_optimizer.h"
#include "atoll/weights/checkpoint.h"

namespace atl::island {

struct StepReport {
  int64_t step = 0;
  double loss = 0;
  double tokens_per_s = 0;
  int64_t num_trained = 0;  // Units.
};

/// What a run is made of. References outlive it.
struct TrainingParts {
  run::RunConfig config;
  std::filesystem::path folder;  // The run directory, e.g. of this island.
  const data::Mixture& mixture;
  const tokenizer::Tokenizer& tokenizer;
  const run::ModelTexts& texts;  // What its checkpoints say of the model beside its weights.
  model::Model& model;
  collective::Averager& averager;
  int rank = 0;  // Of this replica among averager.num_members().
  const Clock& clock;
  std::string pace = "lockstep";  // swarm.pace.
  /// The unit of data to train on next: a global batch is cut into averager.num_members() of them.
  /// Empty: this rank's of each step.
  std::function<Result<int64_t>()> next_unit;
  run::RoundLog* round_log = nullptr;  // Where committed rounds are kept; may be null.
  run::Diary* diary = nullptr;  // What this island does; may be null, and is in elastic pace.
  /// Called after each step, on the training thread. May be empty.
  std::function<void(const StepReport&)> on_step;
  /// Called at each log line, on the training thread. May be empty.
  std::function<void(const run::Progress&)> on_progress;
  /// True once the user asked to stop. May be empty.
  std::function<bool()> interrupted;
  /// Asks all islands to stop together; empty: this replica is alone and stops after the step.
  std::function<void()> request_stop;
  EventSink events = [](const Event&) {};
  /// True once this island alone is to leave the run, after its next sync. May be empty.
  std::function<bool()> leaves;
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
  void set_trained(int64_t units) { num_trained_ = units; }
  int64_t step() const { return step_; }
  /// Begins in the middle of a run, at `step`: `fetch` brings the state of a fragment, of so many
  /// bytes. Throws UsageError if the method takes no newcomers.
  [[nodiscard]] Result<void> join(
      int64_t step,
      const std::function<Result<collective::FetchedState>(int32_t fragment, size_t size)>& fetch);
  /// Seconds that the gradient of one step takes here. Nothing is changed.
  double time_step();
  /// Trains to the last step, or to the agreed stop. A failure means that a peer was lost; the
  /// checkpoints on disk stay valid.
  [[nodiscard]] Result<run::Summary> train();

 private:
  void replay(std::span<const run::LoggedRound> rounds);
  void begin();
  Result<void> train_step();
  void evaluate_and_report(int64_t before);
  Result<void> catch_up();
  void take_rounds();
  bool keeps_now() const;
  void release_checkpoint();
  double forward_backward(int64_t unit);
  Result<int64_t> next_unit();
  double validate(const at::Tensor& parameters_P);
  void leave_out(double loss, double grad_norm);
  void note_abstention(const sync::RoundRecord& round);
  run::Progress progress() const;
  run::SecondsSpent seconds_spent() const;
  void report(bool with_validation);
  void show(run::Progress progress);
  void checkpoint();
  weights::CheckpointContents contents(int64_t step);
  int64_t fullest_checkpoint() const;
  double own_tokens() const;
  int64_t local_rows() const;
  bool ends_run() const;
  bool leaves_now();

  TrainingParts parts_;
  method::TrainOptions options_;
  data::Batches train_rows_;
  data::Batches validation_rows_;
  std::unique_ptr<train::InnerOptimizer> optimizer_;
  std::unique_ptr<sync::Strategy> strategy_;
  weights::CheckpointWriter writer_;
  std::unique_ptr<run::Metrics> metrics_;  // From begin() on; what comes before waits:
  std::vector<run::Progress> unreported_;
  std::vector<std::string> unreported_rounds_;
  at::Tensor inputs_BT_;
  at::Tensor targets_BT_;

  int64_t step_ = 0;              // Optimiser steps done.
  int64_t first_step_ = 0;        // From which on this process has trained; see train_step().
  int64_t began_at_ = 0;          // The step before the first one of this process.
  int64_t checkpoint_step_ = -1;  // Of the last one.
  bool has_synced_ = false;       // With the last step,
  int64_t num_trained_ = 0;       // Units, as this member;
  int64_t steps_now_ = 0;         // by this process.
  int64_t unit_ = 0;              // The last of them.
  bool has_joined_ = false;       // In the middle of the run.
  bool is_at_commit_ = false;     // RunState::at_commit; the first checkpoint is of that.
  bool asked_to_stop_ = false;
  double loss_ = 0;
  double grad_norm_ = 0;
  double learning_rate_ = 0;        // Of the last step.
  int64_t num_unusable_ = 0;        // Steps in a row that are not finite.
  int64_t abstained_in_a_row_ = 0;  // Rounds.
  int64_t abstained_rounds_ = 0;    // In all.
  double train_seconds_ = 0;
  double unit_seconds_ = 0;        // Of these: waited for rows to train on,
  double release_seconds_ = 0;     // and for a checkpoint that reads what would change.
  double checkpoint_seconds_ = 0;  // Between steps.
  double validation_seconds_ = 0;
  Time shown_{};                 // When the last progress was.
  double checkpoint_stall_ = 0;  // Of the checkpoint begun last, seconds.
  double checkpoint_stall_max_ = 0;
  double validation_begin_ = -1;  // Validation loss before the first step; < 0: not measured.
  double validation_island_ = 0;
  std::optional<double> validation_;
};

/// SHA-256 of the parameters' bytes in hexadecimal: what islands compare.
std::string parameter_digest(const at::Tensor& parameters_P);

}  // namespace atl::island
