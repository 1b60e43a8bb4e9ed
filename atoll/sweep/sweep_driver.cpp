#include "atoll/sweep/sweep_driver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/data/mixture.h"
#include "atoll/run/prepare_data.h"
#include "atoll/sweep/point_files.h"
#include "atoll/sweep/sweep_report.h"

namespace atl::sweep {
namespace {

namespace fs = std::filesystem;
using SweepPoint;
using SweepState;

constexpr std::chrono::milliseconds kPause{50};
// Before anything is measured: a start, and a core's time for a token (2 cores, 60 k to 400 k
// parameters); counted again with what finished points took.
constexpr double kStartSeconds = 1.5;
constexpr double kTokenSeconds = 2e-6;
constexpr double kParameterSeconds = 1.1e-10;

/// Steps between checkpoints where the file gives none: about every five minutes of what training
/// is expected to take, as a machine may fail. 0: it is over sooner, or islands, which may be some
/// steps apart, would keep none in common.
int64_t checkpoint_every(run::RunConfig config, double expected_seconds) {
  constexpr double kSeconds = 300;
  if (config.train.checkpoint_every > 0 || expected_seconds <= kSeconds) {
    return config.train.checkpoint_every;
  }
  const double steps = static_cast<double>(config.train.steps) * kSeconds / expected_seconds;
  config.train.checkpoint_every = std::max<int64_t>(1, std::llround(steps));
  try {
    run::check(config);
  } catch (const UsageError&) {
    return 0;
  }
  return config.train.checkpoint_every;
}

/// Names a point's folder; enough of the key to tell points apart.
std::string id_of(const std::string& key) { return key.substr(0, 16); }

std::tuple<std::string, int64_t, double> memory_kind(const SweepPoint& point) {
  return {point.cell.size, point.cell.replicas, point.at[kBatchTokens]};
}

}  // namespace

SweepDriver::SweepDriver(const SweepSettings& settings, SweepDatabase& database,
                         SweepOptions options)
    : settings_(settings), database_(database), options_(std::move(options)) {
  for (PointRow& row : database_.rows()) rows_[row.key] = std::move(row);
  count_costs(state());
}

const std::string& SweepDriver::key(const SweepPoint& point) const {
  std::string& key = keys_[point];
  if (key.empty()) key = key_of(settings_.identity(point));
  return key;
}

const PointRow* SweepDriver::row(const SweepPoint& point) const {
  const auto found = rows_.find(key(point));
  if (found == rows_.end() || found->second.status == PointStatus::kRunning) return nullptr;
  return &found->second;
}

Known SweepDriver::known() const {
  return [this](const SweepPoint& point) -> std::optional<Outcome> {
    const PointRow* found = row(point);
    if (found == nullptr) return std::nullopt;
    Outcome outcome;
    if (found->status == PointStatus::kDone) outcome.loss = found->loss;
    return outcome;
  };
}

PlanRules SweepDriver::rules() const {
  PlanRules rules = settings_.rules();
  rules.obstacle = [this](const SweepPoint& point) {
    const auto [found, is_new] = obstacles_.try_emplace(point);
    if (is_new) found->second = settings_.obstacle(point);
    return found->second;
  };
  return rules;
}

SweepState SweepDriver::state() const {
  return plan_sweep(settings_.spec(), rules(), known(), /*pretend=*/false);
}

std::vector<SweepPoint> SweepDriver::distinct(std::vector<SweepPoint> points) const {
  std::set<std::string> seen;
  std::erase_if(points, [&](const SweepPoint& point) { return !seen.insert(key(point)).second; });
  return points;
}

int64_t SweepDriver::cores(const SweepPoint& point) const {
  return std::min(settings_.cores(point), options_.cores);
}

double SweepDriver::assumed_seconds(const SweepPoint& point) const {
  const double token =
      kTokenSeconds + kParameterSeconds * settings_.model(point.cell.size).num_parameters;
  return kStartSeconds * static_cast<double>(SweepSettings::num_islands(point)) +
         settings_.tokens(point) * token / static_cast<double>(cores(point));
}

void SweepDriver::count_costs(const SweepState& state) {
  costs_.clear();
  all_costs_ = {};
  peak_bytes_.clear();
  for (const SweepPoint& point : distinct(state.points())) {
    const PointRow* found = row(point);
    if (found == nullptr || found->status != PointStatus::kDone || found->seconds <= 0) continue;
    for (Cost* cost : {&costs_[{point.cell.size, point.cell.replicas}], &all_costs_}) {
      cost->seconds += found->seconds;
      cost->assumed_seconds += assumed_seconds(point);
    }
    double& peak = peak_bytes_[memory_kind(point)];
    peak = std::max(peak, found->peak_bytes);
  }
}

PointTask SweepDriver::task(const SweepPoint& point) const {
  const std::string id = id_of(key(point));
  PointTask task{.id = id,
                 .folder = fs::absolute(options_.folder) / "points" / id,
                 .cores = cores(point),
                 .threads = settings_.cores(point),
                 .memory_bytes = settings_.expected_bytes(point),
                 .seconds = assumed_seconds(point)};
  const auto found = costs_.find({point.cell.size, point.cell.replicas});
  const Cost& cost = found == costs_.end() ? all_costs_ : found->second;
  if (cost.assumed_seconds > 0) task.seconds *= cost.seconds / cost.assumed_seconds;
  const auto peak = peak_bytes_.find(memory_kind(point));
  if (peak != peak_bytes_.end() && peak->second > 0) task.memory_bytes = peak->second;
  return task;
}

Outlook SweepDriver::outlook() const {
  const SweepState future = plan_sweep(settings_.spec(), rules(), known(), /*pretend=*/true);
  Outlook outlook{.is_timed = all_costs_.assumed_seconds > 0};
  for (const SweepPoint& point : distinct(future.wanted())) {
    const PointTask expected = task(point);
    ++outlook.num_points;
    outlook.num_too_large += has_memory(expected) ? 0 : 1;
    outlook.tokens += settings_.tokens(point);
    outlook.core_seconds += expected.seconds * static_cast<double>(expected.cores);
    outlook.largest_bytes = std::max(outlook.largest_bytes, expected.memory_bytes);
  }
  return outlook;
}

bool SweepDriver::has_memory(const PointTask& task) const {
  return options_.memory_bytes == 0 || task.memory_bytes <= options_.memory_bytes;
}

std::string SweepDriver::shortage() const {
  size_t num_points = 0;
  double largest = 0;
  for (const SweepPoint& point : distinct(state().wanted())) {
    const PointTask one = task(point);
    if (has_memory(one)) continue;
    ++num_points;
    largest = std::max(largest, one.memory_bytes);
  }
  if (num_points == 0) return {};
  return fmt::format(
      "{} more memory than the budget, {}: up to {}; give more --memory, or train on a larger "
      "machine",
      num_points == 1 ? "1 point needs" : fmt::format("{} points need", num_points),
      format_bytes(options_.memory_bytes), format_bytes(largest));
}

void SweepDriver::export_points() const {
  std::vector<PointRow> rows;
  for (const auto& [key, row] : rows_) rows.push_back(row);
  const std::string text = points_text(rows);
  write_file_atomically(options_.folder / "points.jsonl", text);
  if (!options_.exported.empty()) write_file_atomically(options_.exported, text);
}

void SweepDriver::record(PointRow row) {
  database_.put(row);
  const bool is_over = row.status != PointStatus::kRunning;
  rows_[row.key] = std::move(row);
  if (is_over) export_now_and_then();
}

/// After each end, of large sweeps after some: all of the text is written each time.
void SweepDriver::export_now_and_then() {
  constexpr size_t kPart = 100;
  if (++num_unexported_ * kPart < rows_.size()) return;
  num_unexported_ = 0;
  export_points();
}

void SweepDriver::retry_failed() {
  std::erase_if(rows_, [&](const auto& entry) {
    if (entry.second.status != PointStatus::kFailed) return false;
    database_.remove(entry.first);
    remove_folder(id_of(entry.first));
    return true;
  });
}

void SweepDriver::resume(PointExecutor& executor) {
  std::map<std::string, SweepPoint> points;  // By key.
  for (const SweepPoint& point : state().points()) points.emplace(key(point), point);
  std::vector<std::string> running;
  for (const auto& [key, row] : rows_) {
    if (row.status == PointStatus::kRunning) running.push_back(key);
  }
  for (const std::string& key : running) {
    const std::string id = id_of(key);
    // One that the plan does not ask for now (a source of it is retried, the file was edited) runs
    // all the same, and may be asked for again.
    const auto point = points.find(key);
    const fs::path folder = fs::absolute(options_.folder / "points" / id);
    const PointTask one =
        point == points.end() ? PointTask{.id = id, .folder = folder} : task(point->second);
    in_flight_[id] = key;
    if (fs::exists(point_result_file(folder))) {
      finish({.id = id});
    } else if (!executor.adopt(one)) {
      // To be trained again, from its last checkpoint if it has one.
      in_flight_.erase(id);
      rows_.erase(key);
      database_.remove(key);
    }
  }
  count_costs(state());
}

bool SweepDriver::start(PointExecutor& executor, const std::vector<SweepPoint>& wanted) {
  std::vector<std::pair<PointTask, SweepPoint>> waiting;
  for (const SweepPoint& point : distinct(wanted)) {
    PointTask one = task(point);
    if (!in_flight_.contains(one.id) && has_memory(one)) waiting.emplace_back(one, point);
  }
  // The largest first: small ones fill the gaps at the end.
  std::ranges::sort(waiting, std::ranges::greater(), [](const auto& one) {
    return std::tuple(one.first.cores, one.first.seconds, one.first.id);
  });
  // One by one: each has to be in the database before it runs.
  for (const auto& [one, point] : waiting) {
    PointRow row{.key = key(point), .identity = settings_.identity(point)};
    row.message = rules().obstacle(point);
    if (!row.message.empty()) {
      row.status = PointStatus::kFailed;
      record(row);
      continue;
    }
    run::RunConfig config = settings_.config(point);
    config.train.checkpoint_every = checkpoint_every(config, one.seconds);
    write_point(one.folder, config);
    record(row);
    if (executor.start({&one, 1}) == 0) {
      rows_.erase(row.key);
      database_.remove(row.key);
      break;
    }
    in_flight_[one.id] = row.key;
  }
  return !waiting.empty();
}

/// Whether a point that has no result is to be trained further, now or when the sweep goes on. One
/// that others stop again and again is not.
bool SweepDriver::goes_on(const PointEnd& end) {
  constexpr int kMaxStops = 3;
  return stopping_ || (end.was_stopped && ++num_stops_[end.id] <= kMaxStops);
}

void SweepDriver::remove_folder(const std::string& id) const {
  const fs::path folder = options_.folder / "points" / id;
  std::error_code ignored;
  if (!can_go_on(folder)) fs::remove_all(folder, ignored);
}

void SweepDriver::finish(const PointEnd& end) {
  const std::string& id = end.id;
  const std::string key = in_flight_.at(id);
  in_flight_.erase(id);
  PointRow row = rows_.at(key);
  row.status = PointStatus::kFailed;
  const fs::path folder = options_.folder / "points" / id;
  try {
    if (const auto result = read_point_result(folder)) {
      row.seconds = result->seconds;
      row.peak_bytes = result->peak_bytes;
      row.message = result->log;
      if (result->summary) {
        row.loss = result->summary->val_loss;
        row.digest = result->summary->digest;
        if (std::isfinite(row.loss)) {
          row.status = PointStatus::kDone;
        } else {
          row.loss = 0;
          row.message = "its loss is not a finite number: the learning rates are too high";
        }
      }
    } else if (goes_on(end)) {
      if (!stopping_) fmt::print(stderr, "atoll: point {} was stopped; it is started again\n", id);
      rows_.erase(key);
      database_.remove(key);
      return;
    } else {
      row.message = fmt::format("it ended without a result: {}", end.reason);
    }
  } catch (const InputError& error) {
    row.message = error.what();
  }
  record(row);
  if (row.status == PointStatus::kFailed) {
    fmt::print(stderr, "atoll: point {} failed; the others go on:\n{}\n", id, row.message);
  }
  if (!options_.keep) remove_folder(id);
}

std::string SweepDriver::progress_text(const SweepState& now, const Outlook& left,
                                       double seconds_left) const {
  const std::vector<SweepPoint> points = distinct(now.points());
  size_t over = 0;
  std::optional<std::pair<double, const SweepPoint*>> best;
  for (const SweepPoint& point : points) {
    const PointRow* found = row(point);
    over += found != nullptr ? 1 : 0;
    if (found == nullptr || found->status != PointStatus::kDone) continue;
    if (!best || found->loss < best->first) best = {found->loss, &point};
  }
  std::string text =
      fmt::format("{}/{} points, {} running, left {}{}", over, over + left.num_points,
                  in_flight_.size(), left.is_timed ? "" : "~", format_duration(seconds_left));
  if (best) {
    text += fmt::format(", best {:.4f} ({})", best->first, cell_name(best->second->cell));
  }
  return text;
}

bool SweepDriver::train(PointExecutor& executor, const Clock& clock) {
  const bool is_terminal = ::isatty(STDERR_FILENO) == 1;
  std::optional<ProgressBar> bar;
  if (is_terminal) bar.emplace("sweep", 0, clock);
  bool changed = true;
  bool has_work = true;
  SweepState now;
  Outlook left;
  Time looked = clock.now();
  std::string line;  // The last that was printed where there is no terminal.
  while (true) {
    if (num_interrupts() > 0 && !stopping_) {
      stopping_ = true;
      if (executor.num_running() > 0) {
        fmt::print(stderr, "\natoll: {} points checkpoint and end (Ctrl-C again: end now)\n",
                   executor.num_running());
      }
      executor.stop();
    }
    if (changed) {
      now = state();
      count_costs(now);
    }
    // There is more room only when something has ended.
    if (changed && !stopping_) has_work = start(executor, now.wanted());
    if (changed) {
      left = outlook();
      looked = clock.now();
    }
    const double all_left = left.core_seconds / static_cast<double>(executor.num_cores());
    if (bar) bar->update(0, progress_text(now, left, all_left - seconds(clock.now() - looked)));
    if (changed && !is_terminal) {
      const std::string before = std::exchange(line, progress_text(now, left, all_left));
      if (line != before) fmt::print(stderr, "sweep  {}\n", line);
    }
    changed = false;
    for (const PointEnd& end : executor.poll()) {
      if (!in_flight_.contains(end.id)) continue;
      finish(end);
      changed = true;
    }
    if (changed) continue;
    // A point that could not even be started has changed what is known.
    if (executor.num_running() == 0) {
      if (stopping_ || !has_work) return !stopping_;
      changed = true;
    }
    std::this_thread::sleep_for(kPause);
  }
}

SweepStore prepare_sweep_store(const SweepSettings& settings, const fs::path& folder,
                               const Clock& clock) {
  const fs::path path = run::prepare_store(settings.common(), folder, {}, clock);
  const data::Mixture mixture = data::Mixture::open(path);
  return {fs::absolute(path), mixture.digest(), mixture.vocab_size()};
}

}  // namespace atl::sweep
