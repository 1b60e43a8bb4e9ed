#pragma once
// One membership of a run, from Hello to the end of it: brings together the session, what is on
// this island's disk, and the training run that goes on from there. One owner thread.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/base/result.h"
#include "atoll/collective/session.h"
#include "atoll/island/comeback.h"
#include "atoll/island/holdings.h"
#include "atoll/island/island.h"
#include "atoll/island/materials.h"
#include "atoll/island/training_run.h"
#include "atoll/run/config.h"
#include "atoll/run/round_log.h"
#include "atoll/run/run_folder.h"

namespace atl::island {

class Membership {
 public:
  /// `may_return`: it may be the one that this island had in an earlier process. References outlive
  /// this object.
  Membership(const JoinOptions& options, const run::RunFolder& folder, const Clock& clock,
             const ProgressCallback& on_progress, const EventSink& events, bool may_return);

  /// Trains to the end of the run, or finds it complete and its end on this island's disk. Throws
  /// as join_run().
  Result<run::Summary> train();
  /// After a failure: it ended the membership alone.
  bool may_join_again() const;

 private:
  Result<run::Summary> take_part();
  Result<run::Summary> end_on_disk();
  void prepare();
  collective::ReadyReport report() const;
  void open_round_log();
  TrainingParts parts_with(collective::Averager& averager);
  TrainingParts parts_for(const collective::StartInfo& start, collective::Averager& averager);
  /// What the run uses where its settings say "auto".
  method::SyncOptions resolve(const TrainingParts& parts, const collective::StartInfo& start);
  /// Puts the run where the others are: at a checkpoint, or in the middle. `offset`: of its rounds.
  Result<void> place(const collective::StartInfo& start, int64_t offset);
  Result<void> join_under_way(const collective::StartInfo& start, int64_t offset);
  void go_on_from(const Holding& holding, const collective::StartInfo& start);
  /// Of the rounds on disk; the others are void.
  void go_on_with(const std::vector<run::LoggedRound>& rounds);
  /// What is on disk of steps that the run does not go on from.
  void put_away(int64_t step);
  /// This island is a new member, from that step on.
  void note_membership(const collective::StartInfo& start, int64_t step);

  const JoinOptions& options_;
  const run::RunFolder& folder_;
  const Clock& clock_;
  const ProgressCallback& on_progress_;
  const EventSink& events_;
  const bool may_return_;
  run::RunConfig config_;
  std::map<int64_t, Holding> found_;  // On disk, by step.
  // The exchange thread uses the run's buffers until the session is gone, and the run's checkpoint
  // writer the model's: so they are destroyed, even when training throws.
  std::optional<Materials> materials_;
  std::optional<run::RoundLog> round_log_;
  std::optional<Comeback> comeback_;          // In lockstep, with methods whose rounds are kept.
  collective::Averager* averager_ = nullptr;  // What the run calls.
  std::optional<TrainingRun> run_;
  std::unique_ptr<collective::Session> session_;
};

}  // namespace atl::island
