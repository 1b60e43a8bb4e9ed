#include "atoll/island/island.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "atoll/base/error.h"
#include "atoll/base/event_log.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/base/random.h"
#include "atoll/collective/session.h"
#include "atoll/data/mixture.h"
#include "atoll/island/comeback.h"
#include "atoll/island/holdings.h"
#include "atoll/island/link_probe.h"
#include "atoll/island/run_state.h"
#include "atoll/island/training_run.h"
#include "atoll/model/device.h"
#include "atoll/model/model.h"
#include "atoll/net/address.h"
#include "atoll/net/grpc_transport.h"
#include "atoll/run/events.h"
#include "atoll/run/prepare_data.h"
#include "atoll/run/run_folder.h"
#include "atoll/swarm/rules.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/weights/hf_folder.h"

namespace atl::island {
namespace {

/// Bytes of rounds for each of the parameters' after which a checkpoint is due: as much as two.
constexpr size_t kMostLogged = 8;

/// What a replica needs before its first step.
struct Materials {
  data::Mixture mixture;
  tokenizer::Tokenizer tokenizer;
  model::Model model;
  run::ModelTexts texts;
};

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

/// Parameters and gradients are the least that training needs; without this the system would end
/// the process with no word why.
void require_memory(const weights::ModelConfig& model, at::Device device) {
  if (!device.is_cpu()) return;
  const double bytes = 2 * sizeof(float) * static_cast<double>(weights::num_parameters(model));
  const double memory =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (bytes <= memory) return;
  throw InputError(fmt::format(
      "the model needs {} for its parameters and their gradients alone, and this machine has {}; "
      "choose a smaller one (model.hidden_size, model.num_layers, ...)",
      format_bytes(bytes), format_bytes(memory)));
}

/// LibTorch's errors (no memory left, mostly) without their page of stack.
run::Summary without_backtrace(const std::function<run::Summary()>& train) {
  try {
    return train();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    throw InputError("LibTorch: " + text.substr(0, text.find('\n')));
  }
}

/// Who looks into the folder later finds there why training ended.
run::Summary with_reason_kept(EventLog& events, const std::function<run::Summary()>& train) {
  try {
    return without_backtrace(train);
  } catch (const std::exception& error) {
    events.keep(run::IslandFailed{error.what()});
    throw;
  }
}

void begin_with(const run::InitialModel& init, model::Model& model, const EventSink& events) {
  model::load_weights(model, init.folder());
  for (const std::string& sentence : model::not_finite(model.parameters())) {
    if (init.is_strict) {
      throw InputError(fmt::format("'{}': {}", init.path.string(), sentence));
    }
    events(run::WeightsNotFinite{.model = init.path.string(), .what = sentence});
  }
}

Materials gather(run::RunConfig& config, const std::filesystem::path& run,
                 const run::InitialModel& init, const EventSink& events) {
  if (config.train.threads > 0) at::set_num_threads(static_cast<int>(config.train.threads));
  data::Mixture mixture = data::Mixture::open(config.data.path);
  tokenizer::Tokenizer tokenizer = tokenizer::Tokenizer::load(mixture.tokenizer_file());
  mixture.require_tokenizer(tokenizer);
  if (init.given()) {
    const auto folder = init.folder();
    config.model = weights::load_hf_config(folder).config;
    if (std::filesystem::exists(folder / "tokenizer.json")) {
      mixture.require_tokenizer(tokenizer::Tokenizer::load(folder / "tokenizer.json"));
    }
  }
  const int64_t vocab_size = mixture.vocab_size();
  if (config.model.vocab_size == 0) config.model.vocab_size = vocab_size;
  if (config.model.vocab_size < vocab_size) {
    throw InputError(
        fmt::format("the store '{}' has a vocabulary of {} tokens and the model only {} "
                    "(model.vocab_size); pack the data with the model's tokenizer",
                    config.data.path, vocab_size, config.model.vocab_size));
  }
  run::check(config);
  const at::Device device = model::usable_device(config.train.device, "train.device");
  require_memory(config.model, device);
  model::Model model(config.model, device, model::Purpose::kTraining);
  if (init.given()) {
    begin_with(init, model, events);
    run::keep_model_texts(init.folder(), run);
  } else {
    model.initialise(static_cast<uint64_t>(config.train.seed));
  }
  run::ModelTexts texts = run::kept_model_texts(run, mixture.end_of_text());
  return {std::move(mixture), std::move(tokenizer), std::move(model), std::move(texts)};
}

TrainingParts parts_of(const run::RunConfig& config, const std::filesystem::path& folder,
                       Materials& materials, collective::Averager& averager, const Clock& clock,
                       const ProgressCallback& on_progress, const EventSink& events) {
  return {.config = config,
          .folder = folder,
          .mixture = materials.mixture,
          .tokenizer = materials.tokenizer,
          .texts = materials.texts,
          .model = materials.model,
          .averager = averager,
          .clock = clock,
          .on_progress = on_progress,
          .interrupted = [] { return num_interrupts() > 0; },
          .events = events};
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

/// The shared settings that the user gave: the coordinator's must be the same.
std::map<std::string, std::string> demands_of(const JoinOptions& options, run::RunConfig& asked) {
  SettingList list = asked.settings();
  for (const std::string& assignment : options.overrides) list.apply_override(assignment);
  std::map<std::string, std::string> demands;
  const auto shared = list.shared();
  for (const std::string& assignment : options.overrides) {
    const std::string name = assignment.substr(0, assignment.find('='));
    if (shared.contains(name)) demands[name] = shared.at(name);
  }
  return demands;
}

/// An island keeps its name: ranks are by name, and a resumed island must get its own rows again.
JoinOptions with_name(JoinOptions options, const std::filesystem::path& folder) {
  const auto file = folder / "name";
  const std::string saved =
      run::was_started(folder) && std::filesystem::exists(file) ? read_file(file) : "";
  if (options.name.empty()) {
    options.name = saved.empty() ? "island-" + random_name().substr(0, 6) : saved;
  }
  if (!saved.empty() && saved != options.name) {
    throw UsageError(
        fmt::format("the island in '{}' is called '{}', not '{}'; leave --name out or "
                    "choose another --run",
                    folder.string(), saved, options.name));
  }
  return options;
}

struct WantedRun {
  std::string address;  // Of its coordinator.
  std::string name;     // Empty: the only one there.
};

/// Reads "HOST:PORT" or "HOST:PORT/NAME". Throws UsageError.
WantedRun wanted_run(const std::string& text) {
  const size_t slash = text.find('/');
  WantedRun wanted{.address = text.substr(0, slash)};
  net::require_address("the coordinator", wanted.address);
  if (slash == std::string::npos) return wanted;
  wanted.name = text.substr(slash + 1);
  if (!swarm::is_valid_name(wanted.name)) {
    throw UsageError(fmt::format(
        "the coordinator '{}': what follows the / must be the name of one of its runs: 1 to 64 "
        "letters, digits, '-', '_' or '.'",
        text));
  }
  return wanted;
}

std::unique_ptr<collective::Session> connect(const JoinOptions& options, const Clock& clock,
                                             const EventSink& events) {
  run::RunConfig asked;
  const auto demands = demands_of(options, asked);
  const WantedRun wanted = wanted_run(options.coordinator);
  net::require_address("--listen", options.listen);
  const auto reachable = net::check_address(wanted.address, options.insecure);
  if (!reachable) throw InputError(reachable.error().message);
  const auto listen = net::check_address(options.listen, options.insecure);
  if (!listen) throw InputError(listen.error().message);
  if (net::is_loopback(*listen) && !net::is_loopback(*reachable)) {
    throw UsageError(
        fmt::format("the coordinator '{}' is on another machine, whose islands cannot reach {}; "
                    "say where they reach this one: --listen ADDRESS:0",
                    wanted.address, options.listen));
  }
  events(run::CoordinatorSought{.coordinator = options.coordinator,
                                .patience_s = asked.swarm.join_patience});
  auto session = collective::Session::connect(
      {.coordinator = wanted.address,
       .run_name = wanted.name,
       .listen = options.listen,
       .name = options.name,
       .settings = demands,
       .connect_patience = duration_of(asked.swarm.join_patience),
       .return_patience = duration_of(asked.swarm.return_patience),
       .work_share = asked.sync.exchange_share,
       .on_event = events,
       .cancelled = [] { return num_interrupts() > 0 || has_to_leave(); }},
      [&](net::Transport::Sink sink) {
        auto transport = net::make_grpc_transport(
            {.insecure = options.insecure, .link_rate_bits_per_s = options.link_rate_bits_per_s},
            clock, std::move(sink));
        return options.around_transport ? options.around_transport(std::move(transport))
                                        : std::move(transport);
      },
      clock);
  if (!session) throw InputError(session.error().message);
  return std::move(*session);
}

/// The run's settings, with this machine's own.
run::RunConfig config_of(const collective::Session& session, const JoinOptions& options) {
  run::RunConfig config;
  SettingList list = config.settings();
  list.apply_toml(session.config_text(), "the coordinator's settings");
  for (const Setting& setting : list.settings()) {
    for (const std::string& assignment : options.overrides) {
      if (setting.local && assignment.starts_with(setting.name() + "=")) {
        list.apply_override(assignment);
      }
    }
  }
  return config;
}

/// What "auto" stands for: before the first step the islands measure and choose, later the
/// checkpoint says what they chose.
method::SyncOptions resolve_auto(const TrainingParts& parts, collective::Averager& averager,
                                 const std::filesystem::path& checkpoint, int64_t start_step) {
  method::SyncOptions options = parts.config.sync;
  if (start_step > 0 && !checkpoint.empty()) {
    const RunState state = read_run_state(checkpoint);
    options.codec = state.codec;
    options.fragment_sync_delay = state.fragment_sync_delay;
    return options;
  }
  const int num_members = averager.num_members();
  collective::Alone alone;
  TrainingParts timing{.config = parts.config,
                       .folder = parts.folder,
                       .mixture = parts.mixture,
                       .tokenizer = parts.tokenizer,
                       .texts = parts.texts,
                       .model = parts.model,
                       .averager = alone,
                       .clock = parts.clock};
  timing.config.sync = {.method = "single"};
  timing.config.train.batch_rows /= num_members;
  const double step_seconds = TrainingRun(std::move(timing)).time_step();
  const method::Load load = method::load_of(options, parts.model.parameters().specs(), num_members);
  const auto measured = probe_links(averager, parts.rank, step_seconds,
                                    method::most_bytes(options, load), parts.clock);
  if (!measured) throw InputError(measured.error().message);
  const method::Choice choice = method::choose(options, load, *measured);
  parts.events(run::CodecChosen{
      .codec = choice.codec, .delay = choice.delay, .choice = method::describe(choice, *measured)});
  return method::with_choice(options, choice);
}

run::Summary train_alone_here(const run::RunConfig& given, const std::filesystem::path& folder,
                              const run::InitialModel& init, const Clock& clock,
                              const ProgressCallback& on_progress, const EventSink& events) {
  run::RunConfig config = given;
  const auto checkpoint = newest_checkpoint(folder, init);
  Materials materials = gather(config, folder, init, events);
  collective::Alone alone;
  if (config.sync.codec == "auto") config.sync.codec = "fp32";  // Nobody to send to.
  TrainingRun run(parts_of(config, folder, materials, alone, clock, on_progress, events));
  if (checkpoint) run.resume(*checkpoint);
  return value_of(run.train(), folder);
}

/// One membership of a run, from Hello to the end of it.
class Membership {
 public:
  /// `may_return`: it may be the one that this island had in an earlier process.
  Membership(const JoinOptions& options, const run::RunFolder& folder, const Clock& clock,
             const ProgressCallback& on_progress, const EventSink& events, bool may_return)
      : options_(options),
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
    session_ = connect(options_, clock_, events_);
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
    TrainingParts parts =
        parts_of(config_, folder_.path(), *materials_, alone, clock_, on_progress_, events_);
    parts.pace = config_.swarm.pace;
    if (config_.sync.codec == "auto") {
      parts.config.sync = resolve_auto(parts, alone, end.checkpoint, config_.train.steps);
    }
    TrainingRun run(std::move(parts));
    run.resume(end.checkpoint, end.rounds);
    return run.train();
  }

  void prepare() {
    config_ = config_of(*session_, options_);
    const auto tokenizer =
        options_.init.given() ? options_.init.folder() / "tokenizer.json" : std::filesystem::path();
    config_.data.path = run::prepare_store(config_, folder_.path(), tokenizer, clock_).string();
    materials_.emplace(gather(config_, folder_.path(), options_.init, events_));
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

  collective::ReadyReport report() const {
    const model::Parameters& parameters = materials_->model.parameters();
    std::map<int64_t, std::string> checkpoints;
    for (const auto& [step, holding] : found_) checkpoints[step] = holding.digest;
    if (found_.empty()) checkpoints[0] = parameter_digest(parameters.values_P());
    events_(run::CameAs{options_.name});
    const bool may_be_as_before = may_return_ && comeback_ && !found_.empty();
    return {.facts = {{"data", materials_->mixture.digest()},
                      {"tokenizer", materials_->tokenizer.sha256()},
                      {"model", fmt::format("{} parameters", parameters.values_P().numel())},
                      {"sync.codec", method::codec_name(config_.sync)}},
            .checkpoints = checkpoints,
            .former = may_be_as_before ? comeback_->former(found_.rbegin()->second, session_->run())
                                       : swarm::Former{},
            .newest_rounds = may_be_as_before ? comeback_->newest_rounds()
                                              : decltype(collective::ReadyReport::newest_rounds){},
            .silence_timeout = duration_of(config_.swarm.silence_timeout)};
  }

  void open_round_log() {
    const auto parameter_bytes =
        static_cast<size_t>(materials_->model.parameters().values_P().nbytes());
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

  TrainingParts parts_for(const collective::StartInfo& start, collective::Averager& averager) {
    TrainingParts parts =
        parts_of(config_, folder_.path(), *materials_, averager, clock_, on_progress_, events_);
    parts.rank = start.number;
    parts.pace = config_.swarm.pace;
    parts.round_log = round_log_ ? &*round_log_ : nullptr;
    parts.diary = comeback_ ? &comeback_->diary() : nullptr;
    parts.request_stop = [this] {
      events_(run::StopWanted{});
      session_->request_stop();
    };
    parts.next_unit = [this] { return session_->next_unit(); };
    parts.on_step = [this](const StepReport& report) {
      session_->report({.step = report.step,
                        .loss = report.loss,
                        .tokens_per_s = report.tokens_per_s,
                        .num_trained = report.num_trained});
    };
    parts.leaves = has_to_leave;
    return parts;
  }

  method::SyncOptions resolve(const TrainingParts& parts, const collective::StartInfo& start) {
    if (start.joins) {
      throw InputError(
          "the run is under way, and what its islands measured to choose sync.codec = 'auto' is "
          "not "
          "known here; islands can join such a run only before it begins");
    }
    const auto held = found_.find(start.start_step);
    return resolve_auto(parts, *session_,
                        held == found_.end() ? std::filesystem::path() : held->second.checkpoint,
                        start.start_step);
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
    if (start.joins) {
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

run::Summary join_run_here(const JoinOptions& given, const run::RunFolder& folder,
                           const Clock& clock, const ProgressCallback& on_progress,
                           const EventSink& events) {
  newest_checkpoint(folder.path(), given.init);
  const JoinOptions options = with_name(given, folder.path());
  for (bool is_first = true;; is_first = false) {
    Membership membership(options, folder, clock, on_progress, events, /*may_return=*/is_first);
    auto summary = membership.train();
    if (summary || !membership.may_join_again() || num_interrupts() > 0 || has_to_leave()) {
      return value_of(std::move(summary), folder.path());
    }
    events(run::JoinsAgain{summary.error().message});
  }
}

}  // namespace

run::Summary train_alone(const run::RunConfig& config, const std::filesystem::path& folder,
                         const run::InitialModel& init, const Clock& clock,
                         const ProgressCallback& on_progress) {
  EventLog events(folder);
  return with_reason_kept(events, [&] {
    return train_alone_here(config, folder, init, clock, on_progress, events.sink());
  });
}

run::Summary join_run(const JoinOptions& options, const Clock& clock,
                      const ProgressCallback& on_progress) {
  const run::RunFolder folder(options.folder);
  EventLog events(folder.path());
  return with_reason_kept(
      events, [&] { return join_run_here(options, folder, clock, on_progress, events.sink()); });
}

}  // namespace atl::island
