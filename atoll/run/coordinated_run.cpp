#include "atoll/run/coordinated_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/base/progress.h"
#include "atoll/base/random.h"
#include "atoll/coordinator/events.h"
#include "atoll/identity/invite.h"
#include "atoll/method/method.h"
#include "atoll/net/address.h"
#include "atoll/run/run_folder.h"

namespace atl::run {
namespace {

constexpr int64_t kLeastStepsAhead = 16;  // For which islands have rows.

/// The settings that all islands share, as TOML: what belongs to one machine stays out.
std::string shared_toml(const std::map<std::string, std::string>& shared) {
  std::string text;
  std::string section;
  for (const auto& [name, value] : shared) {  // Sorted, so a section's keys are together.
    const size_t dot = name.find('.');
    if (name.substr(0, dot) != section) {
      section = name.substr(0, dot);
      text += fmt::format("[{}]\n", section);
    }
    text += fmt::format("{} = {}\n", name.substr(dot + 1), value);
  }
  return text;
}

/// What islands are told to join: the address that was bound, but "any" is no place to go to.
std::string address_for_islands(const std::string& bound) {
  auto address = net::parse_address(bound);
  if (!address || !net::is_any_host(address->host)) return bound;
  return fmt::format("THIS_MACHINE:{}", address->port);
}

std::map<std::string, std::string> shared_settings(const std::string& toml) {
  run::RunConfig config;
  SettingList list = config.settings();
  list.apply_toml(toml, "the journal");
  return list.shared();
}

/// When all islands die: one checkpoint may be on its way to the disk, and another be due.
int64_t most_lost(const run::RunConfig& config) {
  if (config.train.checkpoint_every == 0) return INT64_MAX;
  return 2 * config.train.checkpoint_every + 3 * method::max_steps_apart(config.sync);
}

/// What islands learn in fewer steps has too little in common: batches differ by more.
constexpr int64_t kStepsOfADirection = 5;

/// Elastic: in a period all fragments are synchronised in turn.
int64_t units_of_round(const run::RunConfig& config) {
  const int64_t units = config.sync.sync_every * config.swarm.num_replicas();
  return std::max<int64_t>(1, units / method::num_fragments(config.sync));
}

swarm::CoordinatorOptions options_of(const run::RunConfig& config, const std::string& run,
                                     const std::map<std::string, std::string>& shared,
                                     bool are_together) {
  swarm::CoordinatorOptions options{
      .run = run,
      .config = shared_toml(shared),
      .settings = shared,
      .replicas = config.swarm.num_replicas(),
      .min_replicas = config.swarm.min_replicas,
      .steps = config.train.steps,
      .num_fragments = method::num_fragments(config.sync),
      .takes_newcomers = run::takes_newcomers(config),
      .keeps_rounds = run::takes_newcomers(config),
      .most_lost = most_lost(config),
      .most_ahead = method::max_steps_apart(config.sync),
      .steps_ahead = std::max(kLeastStepsAhead, method::period(config.sync)),
      .outlier_factor = config.swarm.outlier_factor,
      .compares_directions = method::period(config.sync) >= kStepsOfADirection,
      .least_term = static_cast<uint64_t>(wall_time()),
      .circuit_secret = sha256(as_byte_span(identity::new_secret())),
      .silence_timeout = duration_of(config.swarm.silence_timeout),
      .round_timeout =
          duration_of(std::max(config.swarm.round_timeout, config.swarm.silence_timeout))};
  if (config.swarm.is_elastic()) {  // Rounds wait for nobody.
    options.round_units = units_of_round(config);
    options.most_ahead = 0;
  } else if (are_together) {
    options.ends_together = true;
    options.min_replicas = config.swarm.num_replicas();
  }
  return options;
}

run::RunConfig config_of(const CoordinatedRun::Request& request,
                         const std::vector<std::string>& overrides) {
  run::RunConfig config = run::load_config(request.config, overrides);
  run::choose_method(config, /*alone=*/false);
  run::check(config);
  run::check_used(config, overrides);
  return config;
}

}  // namespace

void print_log(const std::string& line) {
  const double now = wall_time();
  const auto whole = static_cast<std::time_t>(now);
  fmt::print(stderr, "coordinator: {:%H:%M:%S}.{:03} {}\n", fmt::localtime(whole),
             static_cast<int>(1000 * (now - static_cast<double>(whole))), line);
  std::fflush(stderr);
}

std::string ProgressLog::next(const std::vector<swarm::IslandStatus>& islands) {
  std::string line;
  for (const auto& island : islands) {
    if (!island.loss || !island.tokens_per_s) continue;
    line += fmt::format("{}{} step {}, loss {:.4f}, {} tokens/s{}", line.empty() ? "" : " | ",
                        island.name, island.step, *island.loss, format_count(*island.tokens_per_s),
                        island.state == swarm::IslandState::kLeft ? ", done" : "");
  }
  if (line == last_ || clock_.now() - printed_ < std::chrono::seconds(10)) return "";
  last_ = line;
  printed_ = clock_.now();
  return line;
}

CoordinatedRun::CoordinatedRun(Request request, const std::vector<std::string>& overrides,
                               const Clock& clock)
    : request_(std::move(request)), progress_(clock) {
  try {
    run::RunConfig config = config_of(request_, overrides);
    const auto shared = config.settings().shared();
    if (!request_.folder.empty()) {
      std::filesystem::create_directories(request_.folder);
      journal_.emplace(request_.folder / "coordinator.journal");
      book_ = journal_->book();
    }
    events_.emplace(request_.folder, [this](const std::string& sentence) { tell(sentence); });
    if (book_.has_begun()) {
      came_back_at_ = book_.last_step();
      run::require_same(request_.folder, shared_settings(book_.config()), shared);
    }
    options_ = options_of(config, book_.has_begun() ? book_.run() : random_name(), shared,
                          request_.ends_together);
  } catch (const UsageError& error) {
    if (request_.is_only) throw;
    throw UsageError(fmt::format("run '{}': {}", request_.name, error.what()));
  }
}

void CoordinatedRun::tell(const std::string& sentence) const {
  print_log(request_.is_only ? sentence : fmt::format("[{}] {}", request_.name, sentence));
}

swarm::RunStatus CoordinatedRun::first_status() const {
  return {.name = shown_name(), .run = options_.run, .wanted = options_.replicas};
}

swarm::ServedRun CoordinatedRun::served(std::function<void(swarm::RunStatus)> publish) {
  return {.name = request_.name,
          .options = options_,
          .book = std::exchange(book_, {}),
          .callbacks = {.persist =
                            [this](const swarm::Record& record) {
                              if (journal_) journal_->append(record);
                            },
                        .on_event = [this](const Event& event) { events_->add(event); },
                        .on_progress =
                            [this, publish = std::move(publish)](swarm::RunStatus status) {
                              const std::string line = progress_.next(status.islands);
                              if (!line.empty()) tell(line);
                              status.started_at = started_at_;
                              publish(std::move(status));
                            },
                        .on_end = [this] {  // The folder is free for another coordinator.
                          events_.reset();
                          journal_.reset();
                          file_.reset();
                        }}};
}

void CoordinatedRun::leave_file(const std::string& control, const std::string& status) {
  if (request_.folder.empty()) return;
  file_.emplace(request_.folder,
                run::this_coordinator(options_.run, shown_name(), control, status));
}

void CoordinatedRun::announce(const std::string& control) {
  events_->add(swarm::CoordinatorStarted{
      .run = options_.run,
      .join = address_for_islands(control) + (request_.is_only ? "" : "/" + request_.name),
      .islands = options_.replicas,
      .step = came_back_at_,
      .steps = options_.steps});
}

}  // namespace atl::run
