#include "atoll/island/training_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/interrupt.h"
#include "atoll/island/following.h"
#include "atoll/island/holdings.h"
#include "atoll/island/out_of_memory.h"
#include "atoll/island/round_json.h"
#include "atoll/island/run_state.h"
#include "atoll/method/method.h"

namespace atl::island {
namespace {

std::filesystem::path spills_to(const TrainingParts& parts) {
  return spill_folder(parts.folder, parts.config.train, place_of(parts.processes).size);
}

sync::Replica replica_of(const TrainingParts& parts, const int64_t& num_trained,
                         std::function<void()> before_change) {
  const auto& train = parts.config.train;
  return {
      .values_P = parts.materials.trained().values_P(),
      .gradients_P = parts.materials.trained().gradients_P(),
      .tokens_per_step = train.batch_rows / parts.averager.num_members() * train.sequence_length,
      .pace = {.name = parts.pace, .last_step = train.steps, .keep_every = train.checkpoint_every},
      .specs = parts.materials.trained().specs(),
      .rank = parts.rank,
      .seed = static_cast<uint64_t>(train.seed),
      .num_trained = &num_trained,
      .before_change = std::move(before_change),
      .outer_folder = spills_to(parts)};
}

}  // namespace

TrainingRun::TrainingRun(TrainingParts parts)
    : parts_(std::move(parts)),
      units_({.num_members = parts_.averager.num_members(),
              .rank = parts_.rank,
              .next = parts_.next_unit,
              .diary = parts_.diary},
             parts_.clock, time_),
      patience_(parts_.config.sync, parts_.averager.num_members(), parts_.events),
      stop_(parts_.wishes),
      records_(parts_.folder, parts_.clock, parts_.on_progress, parts_.events),
      leader_(make_leader(parts_)),
      learner_(leader_ ? leader_->learner() : make_learner(parts_.materials, parts_.config.train)),
      gradient_(*learner_, parts_.materials.mixture, parts_.config.train,
                parts_.averager.num_members()),
      validation_(parts_.materials, *learner_, parts_.config.train, parts_.clock, time_,
                  [this] { checkpoints_.wait_until_copied(); }),
      optimizer_(leader_ ? leader_->optimizer()
                         : train::make_inner_optimizer(
                               parts_.config.train, train::target_of(parts_.materials.trained()))),
      strategy_(sync::make_strategy(
          parts_.config.sync,
          replica_of(parts_, units_.num_trained(), [this] { checkpoints_.release(); }),
          parts_.averager, parts_.clock)),
      checkpoints_(
          parts_.folder, checkpoints_to_keep(parts_.config),
          spills_to(parts_).empty() ? weights::StagingPlace::kMemory : weights::StagingPlace::kDisk,
          parts_.clock, time_) {}

void TrainingRun::resume(const std::filesystem::path& folder,
                         std::span<const run::LoggedRound> rounds) {
  const RunState state = restore_checkpoint(folder, parts_.config.train.steps, parts_.materials,
                                            *optimizer_, *strategy_);
  if (leader_) leader_->moments_changed();
  step_ = state.step;
  has_joined_ = state.joined;
  if (rounds.empty() && !state.at_commit) {
    strategy_->abstain_again(state.abstained_rounds);
    strategy_->resumed(state.step);
    if (state.abstains) strategy_->abstain();
  } else {
    replay(rounds);
  }
  if (leader_) leader_->values_changed();
  loss_ = state.train_loss;
  validation_.restore(state.val_loss_start, state.val_loss_island);
}

/// The published state goes on by the outer steps of these rounds, and the live parameters are what
/// is published then. The inner optimiser's moments stay those of the checkpoint.
void TrainingRun::replay(std::span<const run::LoggedRound> rounds) {
  for (const run::LoggedRound& logged : rounds) {
    const auto taken = strategy_->replay(run::read_round(logged.file), logged.before);
    if (!taken) {
      throw InputError(fmt::format("'{}': {}; remove this file to go on from an earlier round",
                                   logged.file.string(), taken.error().message));
    }
    step_ = std::max(step_, logged.step);
  }
  strategy_->replayed(step_);
  is_at_commit_ = true;
}

Result<void> TrainingRun::join(
    int64_t step,
    const std::function<Result<collective::FetchedState>(int32_t fragment, size_t size)>& fetch) {
  const method::SyncOptions& sync = parts_.config.sync;
  int64_t newest = step;
  int64_t last_round = -1;
  for (int32_t fragment = 0; fragment < method::num_fragments(sync); ++fragment) {
    const size_t size = strategy_->state_bytes(fragment);
    if (size == 0) {
      throw UsageError(fmt::format(
          "the run is under way, and sync.method = '{}' takes no islands then; join before it "
          "begins, or use diloco, streaming_diloco or sparse_loco",
          sync.method));
    }
    const auto state = fetch(fragment, size);
    if (!state) return tl::unexpected(state.error());
    auto taken = strategy_->import_state(fragment, state->round, state->digest, state->bytes);
    if (!taken) return taken;
    newest = std::max(newest, state->step);
    if (state->step == parts_.config.train.steps) last_round = state->round;
  }
  step_ = std::min(newest, parts_.config.train.steps - 1);
  strategy_->joined(step_, last_round);
  if (leader_) leader_->values_changed();
  has_joined_ = true;
  is_at_commit_ = true;
  return {};
}

Result<void> TrainingRun::compute_again(const std::function<bool()>& has_left) {
  first_step_ = began_at_ = step_;
  while (has_left()) {
    if (step_ >= parts_.config.train.steps) return failure("there are more rounds than steps");
    const int64_t before = step_;
    if (auto done = train_step(); !done) return done;
    evaluate_and_report(before);
  }
  return {};
}

/// What comes before the first step of this process.
void TrainingRun::begin() {
  first_step_ = began_at_ = step_ - units_.num_now();
  records_.begin(began_at_);
  if (has_joined_ &&
      optimizer_->num_updates() == 0) {  // It was not there, and has not trained yet.
    validation_.has_no_start();
    loss_ = std::numeric_limits<double>::quiet_NaN();
  } else {
    validation_.measure_start(strategy_->global_parameters());
  }
  strategy_->serve();
  checkpoints_.reserve(contents(fullest_checkpoint()));
  const bool is_over = step_ == parts_.config.train.steps && units_.num_now() > 0;
  if (step_ == 0 || is_at_commit_ || is_over) checkpoint();
  is_at_commit_ = false;
  time_.training_begins();
}

Result<run::Summary> TrainingRun::train() {
  try {
    return train_to_the_end();
  } catch (const Interrupted& interrupted) {
    give_up(interrupted.what());
  }
}

Result<run::Summary> TrainingRun::train_to_the_end() {
  begin();
  const int64_t steps = parts_.config.train.steps;
  bool stopped = false;
  while (step_ < steps && !stopped) {
    const int64_t before = step_;
    if (auto done = train_step(); !done) {
      checkpoints_.finish();  // The one under way is still good: let it reach the disk.
      return tl::unexpected(done.error());
    }
    const bool all_end = stop_.ends_run(strategy_->stop_requested());
    const bool leaves = !all_end && stop_.leaves() && strategy_->may_leave(step_);
    stopped = (all_end || leaves) && step_ < steps;
    // It has taken its rounds before they were due, and begun none since: what the schedule says to
    // be on its way here is not. What it has learned since the last round is in none, and lost.
    if (leaves && stopped) {
      stop_.leave();
      is_at_commit_ = !strategy_->syncs_after(step_);
    }
    evaluate_and_report(before);
    if (step_ == steps || stopped || keeps_now()) checkpoint();
  }
  if (stopped) {
    if (auto done = strategy_->drain(); !done) {
      checkpoints_.finish();
      return tl::unexpected(done.error());
    }
  }
  if (!validation_.global()) validation_.measure_global(strategy_->global_parameters());
  if (const auto error = checkpoints_.finish()) {
    throw InputError("the last checkpoint failed: " + *error);
  }
  return summary(stopped);
}

/// Goes to where the others are.
Result<void> TrainingRun::catch_up() {
  bool has_synced = false;
  bool rests = true;
  while (rests) {
    const auto caught_up = strategy_->catch_up(step_);
    if (!caught_up) return tl::unexpected(caught_up.error());
    first_step_ += caught_up->left_to_others;
    step_ = caught_up->step;
    follow_strategy();
    take_rounds();
    has_synced = has_synced || has_synced_;
    rests = caught_up->rests;
    if (rests) checkpoint();
  }
  has_synced_ = has_synced;
  return {};
}

Result<void> TrainingRun::train_step() {
  const int64_t last = parts_.config.train.steps;
  const Time begin = parts_.clock.now();
  if (auto caught_up = catch_up(); !caught_up) return caught_up;
  const bool has_caught_up = has_synced_;
  if (step_ >= last) validation_.measure_island();
  if (step_ >= last || strategy_->stop_requested()) return {};
  if (auto updated = update(); !updated) return updated;
  is_whole_ = false;
  step_ = strategy_->step_after(step_);
  double pause = 0;
  std::optional<Interrupted> interrupted;  // What was learned is no less for it.
  if (step_ == last) {
    const Time before = parts_.clock.now();
    try {
      validation_.measure_island();
    } catch (const Interrupted& caught) {
      interrupted = caught;
    }
    pause = seconds(parts_.clock.now() - before);
  }
  stop_.listen();
  if (stop_.leaves()) strategy_->leave_soon();
  auto done = strategy_->after_step(step_);
  follow_strategy();
  is_whole_ = true;
  if (interrupted) throw Interrupted(*interrupted);
  time_.add(run::TimeSpent::On::kTraining, seconds(parts_.clock.now() - begin) - pause);
  take_rounds();
  has_synced_ = has_synced_ || has_caught_up;
  if (parts_.on_step) {
    parts_.on_step({.step = step_,
                    .loss = loss_,
                    .tokens_per_s = own_tokens() / time_.training(),
                    .num_trained = units_.num_trained()});
  }
  return done;
}

Result<void> TrainingRun::update() {
  const method::TrainOptions& options = parts_.config.train;
  const auto unit = units_.take(step_ + 1);
  if (!unit) return tl::unexpected(unit.error());
  learning_rate_ = method::learning_rate(options, step_);
  if (has_joined_) learning_rate_ *= method::rejoin_factor(options, optimizer_->num_updates());
  const double loss =
      with_memory_advice(parts_.config, parts_.materials.model.device(), place_of(parts_.processes),
                         [&] { return gradient_.add(*unit); });
  // From here on change what methods keep (DeMo's momentum), and then the parameters.
  checkpoints_.release();
  checkpoints_.step_goes_on();
  if (auto done = strategy_->reduce_gradients(step_ + 1); !done) return done;
  loss_ = loss;
  grad_norm_ = leader_ ? leader_->gradient_norm()
                       : train::gradient_norm(parts_.materials.trained().gradients_P());
  if (!patience_.can_use(step_ + 1, loss_, grad_norm_)) strategy_->abstain();
  // The others' mean gradient is taken even where this island's own cannot be used.
  if (std::isfinite(grad_norm_)) {
    optimizer_->step({.lr = learning_rate_,
                      .weight_decay = method::weight_decay(options),
                      .gradient_scale = train::clip_factor(grad_norm_, options.grad_clip)});
  } else {
    optimizer_->skip();
  }
  return {};
}

void TrainingRun::follow_strategy() {
  if (std::exchange(num_changes_, strategy_->num_changes()) == strategy_->num_changes()) return;
  if (leader_) leader_->values_changed();
}

void TrainingRun::take_rounds() {
  const auto rounds = strategy_->take_rounds();
  has_synced_ = !rounds.empty();
  for (const sync::RoundRecord& round : rounds) {
    records_.add_round(to_json(round));
    // Before training begins it is computed again, and on disk.
    if (records_.has_begun() && parts_.round_log != nullptr && round.commit.record != nullptr) {
      parts_.round_log->add(round.commit.record, round.before);
    }
    patience_.note_round(round.commit, round.abstained);
  }
}

bool TrainingRun::keeps_now() const {
  if (has_synced_ && parts_.round_log != nullptr && parts_.round_log->is_full()) return true;
  return strategy_->pace().is_kept(step_, has_synced_);
}

int64_t TrainingRun::fullest_checkpoint() const {
  const int64_t every = parts_.config.train.checkpoint_every;
  const int64_t last = parts_.config.train.steps;
  for (int64_t step = every; every > 0 && step < last; step += every) {
    if (step > step_ && !strategy_->syncs_after(step)) return step;
  }
  return last;
}

void TrainingRun::checkpoint() {
  const int64_t step = strategy_->pace().published_step(step_);
  checkpoints_.begin(step, [&] {
    weights::CheckpointContents now = contents(step);
    if (parts_.round_log != nullptr) {
      now.written = [rounds = parts_.round_log->checkpoint_begins(),
                     steps = parts_.diary != nullptr
                                 ? parts_.diary->checkpoint_begins(step, units_.num_trained())
                                 : [] {}] {
        rounds();
        steps();
      };
    }
    return now;
  });
}

/// What this process has learned up to the last whole step is kept, where no other island's step
/// has to be the same.
void TrainingRun::give_up(const std::string& reason) {
  const bool keeps = is_whole_ && step_ > began_at_ && parts_.averager.num_members() == 1;
  if (keeps) checkpoint();
  if (const auto error = checkpoints_.finish()) {
    throw InputError(fmt::format("{}, and the last checkpoint failed: {}", reason, *error));
  }
  throw Interrupted(keeps ? fmt::format("{}; what was learned is kept at step {}", reason, step_)
                          : reason);
}

/// As a checkpoint of `step` would have them, with the present values: the step decides whether
/// live.* is among them.
weights::CheckpointContents TrainingRun::contents(int64_t step) {
  const RunState state{.step = step,
                       .num_updates = optimizer_->num_updates(),
                       .train_loss = loss_,
                       .val_loss_start = validation_.start(),
                       .val_loss_island = validation_.island(),
                       .held = strategy_->held(),
                       .applied = strategy_->applied(),
                       .store = parts_.materials.mixture.digest(),
                       .frozen = parts_.materials.frozen,
                       .codec = parts_.config.sync.codec,
                       .fragment_sync_delay = parts_.config.sync.fragment_sync_delay,
                       .at_commit = is_at_commit_,
                       .joined = has_joined_,
                       .left = stop_.has_left(),
                       .abstains = strategy_->abstains(),
                       .abstained_rounds = strategy_->abstained_rounds()};
  return checkpoint_contents(state, parts_.config, parts_.materials, *optimizer_, *strategy_);
}

}  // namespace atl::island
