#include "atoll/island/training_run.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/island/holdings.h"
#include "atoll/island/round_json.h"
#include "atoll/island/run_state.h"
#include "atoll/run/events.h"
#include "atoll/train/evaluate.h"
#include "atoll/train/loss.h"

namespace atl::island {
namespace {

constexpr int64_t kValidationBatchRows = 8;
constexpr int64_t kPatienceInPeriods = 3;  // Of steps in a row that cannot be used.
constexpr std::chrono::seconds kShowEvery{5};

data::BatchOptions batch_options(const method::TrainOptions& options) {
  return {.sequence_length = options.sequence_length,
          .batch_rows = options.batch_rows,
          .seed = static_cast<uint64_t>(options.seed)};
}

sync::Replica replica_of(const TrainingParts& parts, const int64_t& num_trained,
                         std::function<void()> before_change) {
  const auto& train = parts.config.train;
  return {
      .values_P = parts.model.parameters().values_P(),
      .gradients_P = parts.model.parameters().gradients_P(),
      .tokens_per_step = train.batch_rows / parts.averager.num_members() * train.sequence_length,
      .pace = {.name = parts.pace,
               .last_step = train.steps,
               .keep_every = train.checkpoint_every},
      .specs = parts.model.parameters().specs(),
      .rank = parts.rank,
      .seed = static_cast<uint64_t>(train.seed),
      .num_trained = &num_trained,
      .before_change = std::move(before_change)};
}

}  // namespace

TrainingRun::TrainingRun(TrainingParts parts)
    : parts_(std::move(parts)),
      options_(parts_.config.train),
      train_rows_(parts_.mixture, data::Split::kTrain, batch_options(options_)),
      validation_rows_(parts_.mixture, data::Split::kValidation, batch_options(options_)),
      optimizer_(
          train::make_inner_optimizer(options_, train::target_of(parts_.model.parameters()))),
      strategy_(sync::make_strategy(
          parts_.config.sync, replica_of(parts_, num_trained_, [this] { release_checkpoint(); }),
          parts_.averager, parts_.clock)),
      writer_(parts_.folder / "checkpoints", checkpoints_to_keep(parts_.config)) {
  train_rows_.require_whole_batch();
  const int64_t rows = options_.micro_batch_rows > 0 ? options_.micro_batch_rows : local_rows();
  inputs_BT_ = at::empty({rows, options_.sequence_length}, at::kLong);
  targets_BT_ = at::empty_like(inputs_BT_);
}

void TrainingRun::resume(const std::filesystem::path& folder,
                         std::span<const run::LoggedRound> rounds) {
  const auto [checkpoint, state] = open_checkpoint(folder, options_.steps, strategy_->pace());
  if (state.store != parts_.mixture.digest()) {
    throw InputError(
        fmt::format("checkpoint '{}' was trained on another token store than '{}' (their "
                    "digests differ); give --data the run's own, or start a new --run",
                    folder.string(), parts_.mixture.folder().string()));
  }
  restore_tensors(checkpoint, parts_.model.parameters(), *optimizer_, *strategy_);
  if (parameter_digest(strategy_->global_parameters()) != state.digest) {
    throw InputError(
        fmt::format("checkpoint '{}': the digest in state.json is not that of its model; remove "
                    "this folder to go on from the one before",
                    folder.string()));
  }
  optimizer_->set_num_updates(state.num_updates);
  step_ = state.step;
  strategy_->restore_held(state.held, state.applied);
  has_joined_ = state.joined;
  if (rounds.empty() && !state.at_commit) {
    strategy_->abstain_again(state.abstained_rounds);
    strategy_->resumed(state.step);
    if (state.abstains) strategy_->abstain();
  } else {
    replay(rounds);
  }
  loss_ = state.train_loss;
  validation_begin_ = state.val_loss_start;
  validation_island_ = state.val_loss_island;
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
    if (state->step == options_.steps) last_round = state->round;
  }
  step_ = std::min(newest, options_.steps - 1);
  strategy_->joined(step_, last_round);
  has_joined_ = true;
  is_at_commit_ = true;
  return {};
}

Result<void> TrainingRun::compute_again(const std::function<bool()>& has_left) {
  first_step_ = began_at_ = step_;
  while (has_left()) {
    if (step_ >= options_.steps) return failure("there are more rounds than steps");
    const int64_t before = step_;
    if (auto done = train_step(); !done) return done;
    evaluate_and_report(before);
  }
  return {};
}

double TrainingRun::time_step() {
  double spent = 0;
  for (int turn = 0; turn < 2; ++turn) {  // The first also warms caches and allocators up.
    const Time begin = parts_.clock.now();
    forward_backward(0);
    spent = seconds(parts_.clock.now() - begin);
  }
  parts_.model.parameters().gradients_P().zero_();
  return spent;
}

/// What comes before the first step of this process.
void TrainingRun::begin() {
  first_step_ = began_at_ = step_ - steps_now_;
  metrics_ = std::make_unique<run::Metrics>(parts_.folder, began_at_, parts_.events);
  for (const run::Progress& progress : std::exchange(unreported_, {})) metrics_->add(progress);
  for (const std::string& line : std::exchange(unreported_rounds_, {})) metrics_->add_round(line);
  if (has_joined_ &&
      optimizer_->num_updates() == 0) {  // It was not there, and has not trained yet.
    validation_begin_ = std::numeric_limits<double>::quiet_NaN();
    loss_ = std::numeric_limits<double>::quiet_NaN();
  } else if (validation_begin_ < 0) {
    validation_begin_ = validate(strategy_->global_parameters());
  }
  strategy_->serve();
  writer_.reserve(contents(fullest_checkpoint()));
  const bool is_over = step_ == options_.steps && steps_now_ > 0;
  if (step_ == 0 || is_at_commit_ || is_over) checkpoint();
  is_at_commit_ = false;
  validation_seconds_ = checkpoint_seconds_ = release_seconds_ = 0;
}

Result<run::Summary> TrainingRun::train() {
  begin();
  bool stopped = false;
  while (step_ < options_.steps && !stopped) {
    const int64_t before = step_;
    if (auto done = train_step(); !done) {
      writer_.finish();  // The checkpoint under way is still good: let it reach the disk.
      return tl::unexpected(done.error());
    }
    stopped = (ends_run() || leaves_now()) && step_ < options_.steps;
    evaluate_and_report(before);
    if (step_ == options_.steps || stopped || keeps_now()) checkpoint();
  }
  if (stopped) {
    if (auto done = strategy_->drain(); !done) {
      writer_.finish();
      return tl::unexpected(done.error());
    }
  }
  if (!validation_) validation_ = validate(strategy_->global_parameters());
  if (const auto error = writer_.finish())
    throw InputError("the last checkpoint failed: " + *error);
  const auto traffic = parts_.averager.stats();
  const auto& stats = strategy_->stats();
  const double blocked = stats.blocked_seconds + unit_seconds_;
  const int64_t steps = strategy_->pace().published_step(step_);
  return run::Summary{.run = parts_.folder.string(),
                      .steps = steps,
                      .tokens = steps * options_.batch_rows * options_.sequence_length,
                      .train_loss = loss_,
                      .val_loss_start = validation_begin_,
                      .val_loss_island = validation_island_,
                      .val_loss = *validation_,
                      .tokens_per_s = train_seconds_ > 0 ? own_tokens() / train_seconds_ : 0,
                      .digest = parameter_digest(strategy_->global_parameters()),
                      .bytes_sent = traffic.bytes_sent,
                      .bytes_received = traffic.bytes_received,
                      .stall_share = train_seconds_ > 0 ? stats.stall_seconds / train_seconds_ : 0,
                      .blocked_share = train_seconds_ > 0 ? blocked / train_seconds_ : 0,
                      .checkpoint_stall_ms = 1000 * checkpoint_stall_max_,
                      .num_parameters = parts_.model.parameters().values_P().numel(),
                      .abstained_rounds = abstained_rounds_,
                      .method = std::string(method::method_of(parts_.config.sync).name),
                      .codec = method::codec_name(parts_.config.sync),
                      .fragment_sync_delay = method::fragment_sync_delay(parts_.config.sync),
                      .steps_now = steps_now_,
                      .stopped = stopped,
                      .seconds = seconds_spent()};
}

/// What is due after the steps from `before` on, which may be several.
void TrainingRun::evaluate_and_report(int64_t before) {
  const auto reached = [&](int64_t every) { return every > 0 && step_ / every != before / every; };
  const bool evaluates = step_ == options_.steps || reached(options_.eval_every);
  if (evaluates) validation_ = validate(strategy_->global_parameters());
  if (evaluates || reached(options_.log_every)) {
    report(evaluates);
  } else if (parts_.clock.now() - shown_ >= kShowEvery) {  // Slow steps, or a slow line.
    show(progress());
  }
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
    take_rounds();
    has_synced = has_synced || has_synced_;
    rests = caught_up->rests;
    if (rests) checkpoint();
  }
  has_synced_ = has_synced;
  return {};
}

Result<void> TrainingRun::train_step() {
  const Time begin = parts_.clock.now();
  if (auto caught_up = catch_up(); !caught_up) return caught_up;
  const bool has_caught_up = has_synced_;
  if (step_ >= options_.steps) validation_island_ = validate(parts_.model.parameters().values_P());
  if (step_ >= options_.steps || strategy_->stats().stop_requested) return {};
  const auto unit = next_unit();
  if (!unit) return tl::unexpected(unit.error());
  learning_rate_ = method::learning_rate(options_, step_);
  if (has_joined_) {
    learning_rate_ *= method::rejoin_factor(options_, optimizer_->num_updates());
  }
  const double loss = forward_backward(*unit);
  // From here on change what methods keep (DeMo's momentum), and then the parameters.
  release_checkpoint();
  checkpoint_stall_max_ = std::max(checkpoint_stall_max_, std::exchange(checkpoint_stall_, 0.0));
  const at::Tensor& gradients_P = parts_.model.parameters().gradients_P();
  if (auto done = strategy_->reduce_gradients(step_ + 1); !done) return done;
  const double grad_norm = train::clip_gradient(gradients_P, options_.grad_clip);
  loss_ = loss;
  grad_norm_ = grad_norm;
  if (std::isfinite(loss) && std::isfinite(grad_norm)) {
    num_unusable_ = 0;
  } else {
    leave_out(loss, grad_norm);
  }
  // The others' mean gradient is taken even where this island's own cannot be used.
  if (std::isfinite(grad_norm)) optimizer_->step(learning_rate_, method::weight_decay(options_));
  gradients_P.zero_();
  step_ = strategy_->step_after(step_);
  double pause = 0;
  if (step_ == options_.steps) {
    const Time before = parts_.clock.now();
    validation_island_ = validate(parts_.model.parameters().values_P());
    pause = seconds(parts_.clock.now() - before);
  }
  if (!asked_to_stop_ && parts_.interrupted && parts_.interrupted()) {
    asked_to_stop_ = true;
    if (parts_.request_stop) parts_.request_stop();
  }
  auto done = strategy_->after_step(step_);
  train_seconds_ += seconds(parts_.clock.now() - begin) - pause;
  take_rounds();
  has_synced_ = has_synced_ || has_caught_up;
  if (parts_.on_step) {
    parts_.on_step({.step = step_,
                    .loss = loss_,
                    .tokens_per_s = own_tokens() / train_seconds_,
                    .num_trained = num_trained_});
  }
  return done;
}

void TrainingRun::take_rounds() {
  const auto rounds = strategy_->take_rounds();
  has_synced_ = !rounds.empty();
  for (const sync::RoundRecord& round : rounds) {
    if (!metrics_) {  // It is computed again, and on disk.
      unreported_rounds_.push_back(to_json(round));
    } else {
      metrics_->add_round(to_json(round));
      if (parts_.round_log != nullptr && round.commit.record != nullptr) {
        parts_.round_log->add(round.commit.record, round.before);
      }
    }
    note_abstention(round);
  }
}

/// The published parameters are those of a step that all islands keep.
bool TrainingRun::keeps_now() const {
  if (has_synced_ && parts_.round_log != nullptr && parts_.round_log->is_full()) return true;
  return strategy_->pace().is_kept(step_, has_synced_);
}

/// The checkpoint under way does not read parameters and state any more after this.
void TrainingRun::release_checkpoint() {
  const double held_up = writer_.release(parts_.clock);
  checkpoint_stall_ += held_up;
  release_seconds_ += held_up;
}

Result<int64_t> TrainingRun::next_unit() {
  const auto before = parts_.diary != nullptr ? parts_.diary->step(step_ + 1) : std::nullopt;
  if (before) {  // It was trained on already, perhaps as another member.
    if (before->member == parts_.rank) num_trained_ = before->trained;
    unit_ = before->unit;
  } else {
    const int64_t own = step_ * parts_.averager.num_members() + parts_.rank;
    const Time begin = parts_.clock.now();
    auto unit = parts_.next_unit ? parts_.next_unit() : Result<int64_t>(own);
    unit_seconds_ += seconds(parts_.clock.now() - begin);
    if (!unit) return unit;
    // Of what was leased before, nothing comes again.
    const int64_t known = parts_.diary != nullptr ? parts_.diary->trained_at(INT64_MAX) : 0;
    num_trained_ = std::max(num_trained_, known) + 1;
    unit_ = *unit;
  }
  steps_now_ += 1;
  if (parts_.diary != nullptr) {
    parts_.diary->note_step(step_ + 1,
                            {.unit = unit_, .trained = num_trained_, .member = parts_.rank});
  }
  return unit_;
}

/// This island alone is done, and what it learned is not lost.
bool TrainingRun::leaves_now() {
  if (!parts_.leaves || !parts_.leaves()) return false;
  strategy_->leave_soon();
  return strategy_->may_leave(step_);
}

/// The others can go on without what this island learned in a step; alone, or again and again,
/// training is over.
void TrainingRun::leave_out(double loss, double grad_norm) {
  num_unusable_ += 1;
  const std::string what = std::isfinite(loss) ? fmt::format("gradient norm is {}", grad_norm)
                                               : fmt::format("loss is {}", loss);
  if (parts_.averager.num_members() == 1 ||
      num_unusable_ > kPatienceInPeriods * method::period(parts_.config.sync)) {
    throw InputError(fmt::format(
        "the {} at step {}: training diverged; {}, so start a "
        "new one with a lower train.lr, a longer train.warmup_steps or a train.grad_clip "
        "(--init CHECKPOINT: from a checkpoint of this one)",
        what, step_ + 1, run::kKeepsSettings));
  }
  strategy_->abstain();
  parts_.events(run::StepLeftOut{.step = step_ + 1, .what = what});
}

/// A round without this island's part teaches it nothing: a run of them is no training.
void TrainingRun::note_abstention(const sync::RoundRecord& round) {
  const method::SyncOptions& sync = parts_.config.sync;
  if (sync.outer_dropout > 0 || !round.commit.included) return;  // There it is meant, or no fault.
  abstained_in_a_row_ = round.abstained ? abstained_in_a_row_ + 1 : 0;
  if (!round.abstained) return;
  abstained_rounds_ += 1;
  const std::string why =
      round.commit.left_out
          ? std::string(
                "the others could not use it, or its norm was far over the usual one (the "
                "coordinator says which)")
          : fmt::format("it was not finite, or more than sync.codec = '{}' can hold",
                        method::codec_name(sync));
  const run::PartLeftOut left_out{.round = round.commit.round, .reason = why};
  if (parts_.averager.num_members() > 1 &&
      abstained_in_a_row_ <= kPatienceInPeriods * method::num_fragments(sync)) {
    return parts_.events(left_out);
  }
  throw InputError(fmt::format(
      "{}, and so were {} before it; {}, so start a new one with a codec for larger numbers (bf16, "
      "fp32) or settings that keep them smaller (train.lr, train.grad_clip)",
      left_out.what(), abstained_in_a_row_ - 1, run::kKeepsSettings));
}

/// Mean cross entropy of this replica's rows, their gradient accumulated.
double TrainingRun::forward_backward(int64_t unit) {
  const int64_t num_units = parts_.averager.num_members();  // In a global batch.
  const std::vector<int64_t> rows = train_rows_.rows(unit / num_units);
  const int64_t micro_rows = inputs_BT_.size(0);
  const int64_t num_micro = local_rows() / micro_rows;
  const auto as_span = [](const at::Tensor& ids_BT) {
    return std::span(ids_BT.mutable_data_ptr<int64_t>(), static_cast<size_t>(ids_BT.numel()));
  };
  const auto begin = static_cast<size_t>(unit % num_units * local_rows());
  double sum = 0;
  for (int64_t micro = 0; micro < num_micro; ++micro) {
    const std::span<const int64_t> mine = std::span(rows).subspan(
        begin + static_cast<size_t>(micro * micro_rows), static_cast<size_t>(micro_rows));
    train_rows_.fill(mine, as_span(inputs_BT_), as_span(targets_BT_));
    const at::Device device = parts_.model.device();
    const train::Loss loss = train::accumulate_gradients(
        parts_.model, inputs_BT_.to(device), targets_BT_.to(device),
        {.z_loss = options_.z_loss, .scale = 1.0 / static_cast<double>(num_micro)});
    sum += loss.cross_entropy.item<double>();
  }
  return sum / static_cast<double>(num_micro);
}

/// The validation loss of `parameters_P` (live or global), which are lent to the model meanwhile.
double TrainingRun::validate(const at::Tensor& parameters_P) {
  const at::Tensor& live_P = parts_.model.parameters().values_P();
  const bool is_live = parameters_P.is_same(live_P);
  const Time begin = parts_.clock.now();
  const int64_t rows = std::min(options_.eval_rows, validation_rows_.num_rows());
  if (!is_live) writer_.release(parts_.clock);
  const at::Tensor kept_P = is_live ? at::Tensor() : live_P.clone();
  if (!is_live) live_P.copy_(parameters_P);
  const double loss = train::mean_loss(parts_.model, validation_rows_, options_.sequence_length,
                                       rows, kValidationBatchRows);
  if (!is_live) live_P.copy_(kept_P);
  validation_seconds_ += seconds(parts_.clock.now() - begin);
  return loss;
}

run::Progress TrainingRun::progress() const {
  const double spent =
      std::max(train_seconds_, 1e-9);  // Who has just joined has taken no step yet.
  const collective::ExchangeStats traffic = parts_.averager.stats();
  const double per_step = spent / static_cast<double>(std::max<int64_t>(1, step_ - first_step_));
  return {.step = step_,
          .steps = options_.steps,
          .tokens = step_ * options_.batch_rows * options_.sequence_length,
          .loss = loss_,
          .lr = learning_rate_,
          .grad_norm = grad_norm_,
          .tokens_per_s = own_tokens() / spent,
          .seconds_left = per_step * static_cast<double>(options_.steps - step_),
          .stall_share = strategy_->stats().stall_seconds / spent,
          .abstained_rounds = abstained_rounds_,
          .bytes_sent = traffic.bytes_sent,
          .bytes_received = traffic.bytes_received,
          .member = parts_.rank,
          .trained = num_trained_,
          .unit = unit_,
          .began_at = began_at_,
          .seconds = seconds_spent()};
}

run::SecondsSpent TrainingRun::seconds_spent() const {
  const sync::SyncStats& stats = strategy_->stats();
  const double waited = stats.blocked_seconds + unit_seconds_;
  return {.computing = std::max(
              0.0, train_seconds_ - stats.stall_seconds - unit_seconds_ - release_seconds_),
          .handling = std::max(0.0, stats.stall_seconds - stats.blocked_seconds),
          .waiting = waited,
          .validation = validation_seconds_,
          .checkpoints = checkpoint_seconds_ + release_seconds_};
}

void TrainingRun::report(bool with_validation) {
  run::Progress now = progress();
  if (with_validation) now.val_loss = validation_;
  if (metrics_) {
    metrics_->add(now);
  } else {
    unreported_.push_back(now);
  }
  show(now);
}

void TrainingRun::show(run::Progress progress) {
  progress.val_loss = validation_;
  shown_ = parts_.clock.now();
  if (parts_.on_progress) parts_.on_progress(progress);
}

void TrainingRun::checkpoint() {
  const int64_t step = strategy_->pace().published_step(step_);
  if (step == checkpoint_step_) return;
  const Time begin = parts_.clock.now();
  if (const auto error = writer_.finish()) {
    const auto valid = weights::list_checkpoints(parts_.folder / "checkpoints");
    throw InputError(fmt::format(
        "a checkpoint could not be written: {}; {}", *error,
        valid.empty() ? "there is none yet" : "the last one is " + valid.back().second.string()));
  }
  checkpoint_step_ = step;
  weights::CheckpointContents now = contents(step);
  if (parts_.round_log != nullptr) {
    now.written = [rounds = parts_.round_log->checkpoint_begins(),
                   steps = parts_.diary != nullptr
                               ? parts_.diary->checkpoint_begins(step, num_trained_)
                               : [] {}] {
      rounds();
      steps();
    };
  }
  writer_.begin(std::move(now));
  checkpoint_stall_ = seconds(parts_.clock.now() - begin);
  checkpoint_seconds_ += checkpoint_stall_;
}

/// As a checkpoint of `step` would have them, with the present values: the step decides whether
/// live.* is among them.
weights::CheckpointContents TrainingRun::contents(int64_t step) {
  const RunState state{.step = step,
                       .num_updates = optimizer_->num_updates(),
                       .train_loss = loss_,
                       .val_loss_start = validation_begin_,
                       .val_loss_island = validation_island_,
                       .held = strategy_->held(),
                       .applied = strategy_->applied(),
                       .store = parts_.mixture.digest(),
                       .codec = parts_.config.sync.codec,
                       .fragment_sync_delay = parts_.config.sync.fragment_sync_delay,
                       .at_commit = is_at_commit_,
                       .joined = has_joined_,
                       .abstains = strategy_->abstains(),
                       .abstained_rounds = strategy_->abstained_rounds()};
  return checkpoint_contents(state, parts_.config, parts_.mixture, parts_.tokenizer, parts_.texts,
                             parts_.model, *optimizer_, *strategy_);
}

/// The step of a coming checkpoint that holds as much as any: live.* too, if one of them does.
int64_t TrainingRun::fullest_checkpoint() const {
  const int64_t every = options_.checkpoint_every;
  for (int64_t step = every; every > 0 && step < options_.steps; step += every) {
    if (step > step_ && !strategy_->syncs_after(step)) return step;
  }
  return options_.steps;
}

/// That this process has trained on.
double TrainingRun::own_tokens() const {
  return static_cast<double>(steps_now_ * local_rows() * options_.sequence_length);
}

int64_t TrainingRun::local_rows() const {
  return options_.batch_rows / parts_.averager.num_members();
}

bool TrainingRun::ends_run() const {
  if (parts_.request_stop) return strategy_->stats().stop_requested;
  return asked_to_stop_;
}

std::string parameter_digest(const at::Tensor& parameters_P) {
  const at::Tensor host_P = parameters_P.cpu().contiguous();
  return hex(sha256({reinterpret_cast<const std::byte*>(host_P.const_data_ptr<float>()),
                     static_cast<size_t>(host_P.nbytes())}));
}

}  // namespace atl::island
