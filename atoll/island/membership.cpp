#include "atoll/island/membership.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/collective/session.h"
#include "atoll/island/chosen_codec.h"
#include "atoll/island/comeback.h"
#include "atoll/island/following.h"
#include "atoll/island/holdings.h"
#include "atoll/island/joining.h"
#include "atoll/island/link_probe.h"
#include "atoll/island/materials.h"
#include "atoll/island/run_state.h"
#include "atoll/island/training_run.h"
#include "atoll/method/method.h"
#include "atoll/run/events.h"
#include "atoll/run/own_share.h"
#include "atoll/run/prepare_data.h"
#include "atoll/run/round_log.h"
#include "atoll/weights/hf_folder.h"

namespace atl::island {
namespace {

/// Bytes of rounds for each of the parameters' after which a checkpoint is due: as much as two.
constexpr size_t kMostLogged = 8;

/// One membership, from Hello to the end of it: brings together the session, what is on this
/// island's disk, and the training run that goes on from there.
class Membership {
 public:
  /// `may_return`: it may be the one that this island had in an earlier process.
  Membership(const Destination& destination, const run::RunFolder& folder, const Clock& clock,
             const ProgressCallback& on_progress, const EventSink& events, bool may_return)
      : destination_(destination),
        options_(destination.options),
        folder_(folder),
        clock_(clock),
        on_progress_(on_progress),
        events_(events),
        may_return_(may_return) {}

  /// Trains to the end of the run, or finds it complete and its end on this island's disk.
  Result<run::Summary> train() {
    auto summary = take_part();
    const bool is_complete = !summary && session_->ending() == swarm::Ending::kComplete;
    return is_complete && found_.contains(config_.train.steps) ? end_on_disk() : summary;
  }

  /// After a failure: it ended the membership alone.
  bool may_join_again() const {
    return session_ != nullptr && session_->ending() == swarm::Ending::kMembership;
  }

 private:
  Result<run::Summary> take_part() {
    session_ = connect(destination_, clock_, events_);
    prepare();
    const auto start = session_->ready(report());
    if (!start) return tl::unexpected(start.error());
    write_file_atomically(folder_.path() / "name", options_.name);
    folder_.save(config_);
    OffsetAverager after_probe(*session_, kProbeRounds);
    const bool is_auto = config_.sync.codec == "auto";
    if (run::takes_newcomers(config_)) open_round_log();
    averager_ = is_auto ? static_cast<collective::Averager*>(&after_probe) : session_.get();
    if (comeback_) averager_ = &comeback_->before(*averager_);
    TrainingParts parts = parts_for(*start, *averager_);
    if (is_auto) parts.config.sync = resolve(parts, *start);
    run_.emplace(std::move(parts));
    if (auto placed = place(*start, is_auto ? kProbeRounds : 0); !placed) {
      return tl::unexpected(placed.error());
    }
    auto summary = run_->train();
    if (!summary) return summary;
    if (auto left = session_->leave(); !left) return tl::unexpected(left.error());
    return summary;
  }

  Result<run::Summary> end_on_disk() {
    const Holding& end = found_.at(config_.train.steps);
    collective::Alone alone;
    TrainingParts parts = parts_with(alone);
    if (config_.sync.codec == "auto") {
      parts.config.sync = chosen_before(config_.sync, end.checkpoint);
    }
    TrainingRun run(std::move(parts));
    run.resume(end.checkpoint, end.rounds);
    return run.train();
  }

  void prepare() {
    config_ = config_of(*session_, options_);
    if (options_.processes != nullptr)
      run::take_own_share(config_.train, options_.processes->place());
    run::require_base(config_.adapter);
    const auto tokenizer = tokenizer_folder();
    config_.data.path = run::prepare_store(config_, folder_.path(), tokenizer, clock_).string();
    materials_.emplace(gather(config_, folder_.path(), options_.init, options_.find_servers,
                              events_, place_of(options_.processes)));
    run::require_same(folder_.path(), config_);
    if (const int64_t kept = checkpoints_to_keep(config_); kept != config_.train.keep_checkpoints) {
      events_(run::MoreCheckpointsKept{.kept = kept, .asked = config_.train.keep_checkpoints});
    }
    // Elastic: the rounds that end a run have steps of their own.
    const int64_t num_at_end = config_.swarm.is_elastic() ? 1 : method::num_fragments(config_.sync);
    found_ = holdings_in(folder_.path(), config_.train.steps, static_cast<size_t>(num_at_end));
    if (run::takes_newcomers(config_) && !config_.swarm.is_elastic()) {
      comeback_.emplace(folder_.path(), events_);
    }
  }

  /// Of the model whose tokenizer reads the texts; empty: one is made.
  std::filesystem::path tokenizer_folder() const {
    if (config_.adapter.is_on()) return weights::resolve_model(config_.adapter.base);
    return options_.init.given() ? options_.init.folder() : std::filesystem::path();
  }

  collective::ReadyReport report() const {
    const model::Parameters& parameters = materials_->trained();
    std::map<int64_t, std::string> checkpoints;
    for (const auto& [step, holding] : found_) checkpoints[step] = holding.digest;
    if (found_.empty()) checkpoints[0] = parameter_digest(parameters.values_P());
    events_(run::CameAs{options_.name});
    std::map<std::string, std::string> facts = {
        {"data", materials_->mixture.digest()},
        {"tokenizer", materials_->tokenizer.sha256()},
        {"model", fmt::format("{} parameters", parameters.values_P().numel())},
        {"sync.codec", method::codec_name(config_.sync)}};
    // Weights come from the others, but not these: without them its checkpoints would lack the
    // chat template.
    if (config_.adapter.is_on()) {
      facts["the model of --frozen"] = materials_->frozen;
    }
    if (materials_->texts.are_kept) facts["files of --init"] = model_files_digest(*materials_);
    const bool may_be_as_before = may_return_ && comeback_ && !found_.empty();
    return {.facts = std::move(facts),
            .checkpoints = checkpoints,
            .former = may_be_as_before ? comeback_->former(found_.rbegin()->second, session_->run())
                                       : swarm::Former{},
            .newest_rounds = may_be_as_before ? comeback_->newest_rounds()
                                              : decltype(collective::ReadyReport::newest_rounds){},
            .silence_timeout = duration_of(config_.swarm.silence_timeout)};
  }

  void open_round_log() {
    const auto parameter_bytes = static_cast<size_t>(materials_->trained().values_P().nbytes());
    round_log_.emplace(rounds_in(folder_.path()), kMostLogged * parameter_bytes,
                       [this](const std::string& reason) { events_(run::RoundsNotKept{reason}); });
  }

  /// Of the rounds on disk; the others are void.
  void go_on_with(const std::vector<run::LoggedRound>& rounds) {
    if (round_log_) round_log_->keep_only(rounds);
  }

  /// What is on disk of steps that the run does not go on from.
  void put_away(int64_t step) {
    for (const int64_t other : put_void_away(folder_.path(), step)) {
      events_(run::CheckpointVoid{.step = step, .void_step = other});
    }
  }

  TrainingParts parts_with(collective::Averager& averager) {
    return {.config = config_,
            .folder = folder_.path(),
            .materials = *materials_,
            .averager = averager,
            .clock = clock_,
            .pace = config_.swarm.pace,
            .processes = options_.processes,
            .wishes = {.interrupted = [] { return num_interrupts() > 0; }},
            .on_progress = on_progress_,
            .events = events_};
  }

  TrainingParts parts_for(const collective::StartInfo& start, collective::Averager& averager) {
    TrainingParts parts = parts_with(averager);
    parts.rank = start.number;
    parts.round_log = round_log_ ? &*round_log_ : nullptr;
    parts.diary = comeback_ ? &comeback_->diary() : nullptr;
    parts.wishes.request_stop = [this] {
      events_(run::StopWanted{});
      session_->request_stop();
    };
    parts.next_unit = [this] { return session_->next_unit(); };
    parts.on_step = [this](const collective::ProgressReport& report) { session_->report(report); };
    parts.wishes.leaves = has_to_leave;
    return parts;
  }

  /// What the run uses where its settings say "auto".
  method::SyncOptions resolve(const TrainingParts& parts, const collective::StartInfo& start) {
    if (start.joins) {
      throw InputError(
          "the run is under way, and what its islands measured to choose sync.codec = 'auto' is "
          "not "
          "known here; islands can join such a run only before it begins");
    }
    const auto held = found_.find(start.start_step);
    return start.start_step > 0 && held != found_.end()
               ? chosen_before(parts.config.sync, held->second.checkpoint)
               : choose_codec(parts, *session_);
  }

  /// This island is a new member, from that step on.
  void note_membership(const collective::StartInfo& start, int64_t step) {
    if (!comeback_) return;
    comeback_->diary().begin(
        {.run = session_->run(), .term = start.term, .member = start.number, .step = step});
  }

  void go_on_from(const Holding& holding, const collective::StartInfo& start) {
    if (comeback_) {
      return comeback_->go_on_from(holding, start.returns, run_,
                                   [&] { return parts_for(start, *averager_); });
    }
    run_->resume(holding.checkpoint, holding.rounds);
    if (holding.rounds.empty()) return;
    events_(run::RoundsReplayed{.step = start.start_step,
                                .checkpoint = holding.checkpoint.filename().string(),
                                .rounds = std::ssize(holding.rounds)});
  }

  /// Puts the run where the others are: at a checkpoint, or in the middle. `offset`: of its rounds.
  Result<void> place(const collective::StartInfo& start, int64_t offset) {
    if (start.returns) {
      go_on_from(found_.rbegin()->second, start);
      return {};
    }
    if (start.joins) return join_under_way(start, offset);
    note_membership(start, start.start_step);
    const auto held = found_.find(start.start_step);
    if (held != found_.end()) {
      go_on_with(held->second.rounds);
      put_away(start.start_step);
      go_on_from(held->second, start);
    } else if (start.start_step != 0 || !found_.empty()) {
      throw InputError(
          fmt::format("the coordinator starts at step {}, of which '{}' has no checkpoint",
                      start.start_step, folder_.path().string()));
    } else {
      go_on_with({});
    }
    return {};
  }

  Result<void> join_under_way(const collective::StartInfo& start, int64_t offset) {
    events_(run::StateWanted{start.step});
    put_away(start.step);
    auto joined = run_->join(start.step, [&](int32_t fragment, size_t size) {
      auto state = session_->fetch_state(fragment, size);
      if (state) state->round -= offset;
      return state;
    });
    if (joined) events_(run::StateTaken{});
    note_membership(start, run_->step());
    return joined;
  }

  const Destination& destination_;
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

}  // namespace

Result<run::Summary> take_part(const Destination& destination, const run::RunFolder& folder,
                               const Clock& clock, const ProgressCallback& on_progress,
                               const EventSink& events) {
  for (bool is_first = true;; is_first = false) {
    Membership membership(destination, folder, clock, on_progress, events, /*may_return=*/is_first);
    auto summary = membership.train();
    if (summary || !membership.may_join_again() || num_interrupts() > 0 || has_to_leave()) {
      return summary;
    }
    events(run::JoinsAgain{summary.error().message});
  }
}

}  // namespace atl::island
