#include "atoll/sweep/point_files.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/fields_json.h"
#include "atoll/base/file.h"
#include "atoll/base/interrupt.h"
#include "atoll/base/progress.h"
#include "atoll/run/child_process.h"
#include "atoll/run/run_folder.h"

namespace atl::sweep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogLines = 8;
constexpr size_t kMaxLogBytes = 4000;

/// Of the largest of the processes that this one has waited for, and that those have.
double largest_child_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

/// Bytes of metrics that the run has written; they become more as it goes on.
uintmax_t bytes_of_metrics(const fs::path& run, int64_t num_islands) {
  uintmax_t sum = 0;
  std::error_code missing;
  for (int64_t i = 0; i < num_islands; ++i) {
    const fs::path folder = num_islands > 1 ? run / fmt::format("island-{}", i) : run;
    const uintmax_t bytes = fs::file_size(folder / "metrics.jsonl", missing);
    if (!missing) sum += bytes;
  }
  return sum;
}

/// The end of a log as text: what is no UTF-8 would be no JSON.
std::string end_of_log(const fs::path& log) {
  std::string text = run::last_lines(log, kLogLines);
  if (text.size() > kMaxLogBytes) text = text.substr(text.size() - kMaxLogBytes);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) >= 0x80 || (c < ' ' && c != '\n')) c = '?';
  }
  return text;
}

}  // namespace

std::string to_json(const PointResult& result) { return json_of(result).dump(); }

PointResult point_result_from_json(std::string_view text, const std::string& name) {
  return struct_in<PointResult>(text, fmt::format("'{}' is no result of a point", name));
}

fs::path point_settings_file(const fs::path& folder) { return folder / "settings.toml"; }
fs::path point_result_file(const fs::path& folder) { return folder / "result.json"; }

bool can_go_on(const fs::path& folder) {
  return run::was_started(folder / "run") && !fs::exists(point_result_file(folder));
}

void write_point(const fs::path& folder, run::RunConfig config) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw InputError(fmt::format("cannot make '{}': {}", folder.string(), error.message()));
  }
  if (can_go_on(folder)) {
    const run::RunConfig begun = run::load_config(folder / "run" / "config.toml", {});
    config.train.checkpoint_every = begun.train.checkpoint_every;
  } else {
    fs::remove_all(folder / "run", error);
  }
  fs::remove(point_result_file(folder), error);
  write_file_atomically(point_settings_file(folder), config.settings().dump(/*with_help=*/false));
}

std::optional<PointResult> read_point_result(const fs::path& folder) {
  const fs::path file = point_result_file(folder);
  std::error_code missing;
  if (!fs::exists(file, missing)) return std::nullopt;
  return point_result_from_json(read_file(file), file.string());
}

void train_point(const fs::path& program, const fs::path& folder, Duration patience) {
  constexpr int64_t kUsualLogEvery = 10;
  const fs::path settings = point_settings_file(folder);
  const fs::path run = folder / "run";
  const run::RunConfig config = run::load_config(settings, {});
  const int64_t num_islands = config.swarm.num_replicas();
  patience *= std::max<int64_t>(1, config.train.log_every / kUsualLogEvery);
  std::vector<std::string> command = {program.string(), "train",      settings.string(),
                                      "--run",          run.string(), "--json"};
  // The others would wait for one that is lost: a point has no use for fewer islands.
  if (num_islands > 1) command.emplace_back("--together");
  const SystemClock clock;
  const Time begin = clock.now();
  run::ChildProcess training(command, folder / "log.txt");
  std::string printed;
  bool forwarded = false;
  bool is_stuck = false;
  Time went_on = begin;
  uintmax_t written = 0;
  while (!training.poll_exit() || training.output() >= 0) {
    pollfd output{training.output(), POLLIN, 0};  // A descriptor of -1 is left out.
    ::poll(&output, 1, 100);
    for (std::string& line : training.read_lines()) printed = std::move(line);
    if (num_interrupts() > 0 && !std::exchange(forwarded, true)) training.signal(SIGINT);
    const uintmax_t bytes = bytes_of_metrics(run, num_islands);
    if (std::exchange(written, bytes) != bytes) went_on = clock.now();
    if (clock.now() - went_on > patience && !std::exchange(is_stuck, true)) {
      training.signal(SIGKILL);
    }
  }
  PointResult result{.status = *training.poll_exit(),
                     .seconds = seconds(clock.now() - begin),
                     .peak_bytes = static_cast<double>(num_islands) * largest_child_bytes()};
  if (result.status == 0) {
    result.summary = run::summary_from_json(printed);
    if (result.summary->stopped) return;
    // Steps that an earlier process took have their share of the time.
    if (result.summary->steps_now > 0) {
      result.seconds *= static_cast<double>(result.summary->steps) /
                        static_cast<double>(result.summary->steps_now);
    }
  } else {
    const bool was_told_to_end =
        !training.was_killed() && (result.status == 128 + SIGINT ||
                                   result.status == 128 + SIGTERM || result.status == 128 + SIGHUP);
    if (forwarded || was_told_to_end) return;
    result.log = end_of_log(folder / "log.txt");
    if (is_stuck) {
      result.log += fmt::format("{}no step within {}", result.log.empty() ? "" : "\n",
                                format_duration(seconds(patience)));
    } else if (training.was_killed()) {
      result.log +=
          fmt::format("{}killed by signal {}", result.log.empty() ? "" : "\n", result.status - 128);
    }
  }
  write_file_atomically(point_result_file(folder), to_json(result));
}

}  // namespace atl::sweep
