// What a run says of itself: on the way (a line of metrics, a progress line) and at its end.
#include <algorithm>
#include <string>

#include "atoll/island/run_state.h"
#include "atoll/island/training_run.h"
#include "atoll/method/method.h"

namespace atl::island {

/// What is due after the steps from `before` on, which may be several.
void TrainingRun::evaluate_and_report(int64_t before) {
  const method::TrainOptions& options = parts_.config.train;
  const auto reached = [&](int64_t every) { return every > 0 && step_ / every != before / every; };
  const bool evaluates = step_ == options.steps || reached(options.eval_every);
  if (evaluates) validation_.measure_global(strategy_->global_parameters());
  if (evaluates || reached(options.log_every)) {
    run::Progress line = progress();
    if (evaluates) line.val_loss = validation_.global();
    records_.add(line);
  } else if (records_.is_stale()) {
    records_.show(progress());
  }
}

run::Progress TrainingRun::progress() const {
  const method::TrainOptions& options = parts_.config.train;
  const sync::SyncStats& stats = strategy_->stats();
  const double spent =
      std::max(time_.training(), 1e-9);  // Who has just joined has taken no step yet.
  const collective::ExchangeStats traffic = parts_.averager.stats();
  const double per_step = spent / static_cast<double>(std::max<int64_t>(1, step_ - first_step_));
  return {.step = step_,
          .steps = options.steps,
          .tokens = step_ * options.batch_rows * options.sequence_length,
          .loss = loss_,
          .lr = learning_rate_,
          .grad_norm = grad_norm_,
          .tokens_per_s = own_tokens() / spent,
          .seconds_left = per_step * static_cast<double>(options.steps - step_),
          .stall_share = stats.stall_seconds / spent,
          .abstained_rounds = patience_.abstained_rounds(),
          .bytes_sent = traffic.bytes_sent,
          .bytes_received = traffic.bytes_received,
          .member = parts_.rank,
          .trained = units_.num_trained(),
          .unit = units_.last(),
          .began_at = began_at_,
          .seconds = time_.spent(stats.stall_seconds, stats.blocked_seconds)};
}

run::Summary TrainingRun::summary(bool stopped) const {
  const method::TrainOptions& options = parts_.config.train;
  const method::SyncOptions& sync = parts_.config.sync;
  const collective::ExchangeStats traffic = parts_.averager.stats();
  const sync::SyncStats& stats = strategy_->stats();
  const int64_t steps = strategy_->pace().published_step(step_);
  const auto per_second = [&](double amount) {
    return time_.training() > 0 ? amount / time_.training() : 0;
  };
  return {.run = parts_.folder.string(),
          .steps = steps,
          .tokens = steps * options.batch_rows * options.sequence_length,
          .train_loss = loss_,
          .val_loss_start = validation_.start(),
          .val_loss_island = validation_.island(),
          .val_loss = *validation_.global(),
          .tokens_per_s = per_second(own_tokens()),
          .digest = parameter_digest(strategy_->global_parameters()),
          .bytes_sent = traffic.bytes_sent,
          .bytes_received = traffic.bytes_received,
          .stall_share = per_second(stats.stall_seconds),
          .blocked_share = per_second(time_.waited(stats.blocked_seconds)),
          .checkpoint_stall_ms = 1000 * checkpoints_.longest_stall(),
          .num_parameters = parts_.materials.trained().values_P().numel(),
          .abstained_rounds = patience_.abstained_rounds(),
          .method = std::string(method::method_of(sync).name),
          .codec = method::codec_name(sync),
          .fragment_sync_delay = method::fragment_sync_delay(sync),
          .steps_now = units_.num_now(),
          .stopped = stopped,
          .seconds = time_.spent(stats.stall_seconds, stats.blocked_seconds)};
}

double TrainingRun::own_tokens() const {
  return static_cast<double>(units_.num_now() * gradient_.num_tokens());
}

}  // namespace atl::island
