#pragma once
// The folder of one point of a sweep: settings.toml, which `atoll train` takes; run/, its run
// directory; log.txt, what it said; result.json, when it is over. LibTorch-free.
#include <filesystem>
#include <optional>
#include <string>

#include "atoll/base/clock.h"
#include "atoll/run/config.h"
#include "atoll/run/progress.h"

namespace atl::sweep {

/// What became of a point.
struct PointResult {
  int status = 0;         // Exit status of training; 128 + signal.
  double seconds = 0;     // That all its steps take; of a resumed one, from those it took last.
  double peak_bytes = 0;  // Of all its processes: the largest one's, times the islands.
  std::optional<run::Summary> summary;  // Where the status is 0.
  std::string log;                      // The last lines of what it said; where it failed.

  void visit(auto&& field) {
    field("status", status), field("seconds", seconds), field("peak_bytes", peak_bytes);
    field("summary", summary, LeftOutWhenNew{}), field("log", log);
  }
};

std::string to_json(const PointResult& result);
/// Throws InputError naming `name` when the text is no such object.
PointResult point_result_from_json(std::string_view text, const std::string& name);

std::filesystem::path point_settings_file(const std::filesystem::path& folder);
std::filesystem::path point_result_file(const std::filesystem::path& folder);

/// Whether it has a checkpoint and no result: what is there is worth keeping.
bool can_go_on(const std::filesystem::path& folder);

/// Makes the folder with its settings. A run directory with a checkpoint is gone on with, with
/// train.checkpoint_every as it is there; what is left of one without is removed, as is an old
/// result.
void write_point(const std::filesystem::path& folder, run::RunConfig config);

/// Nothing while there is no result.json.
std::optional<PointResult> read_point_result(const std::filesystem::path& folder);

/// For ten steps and what surrounds them.
constexpr std::chrono::hours kPointPatience{1};

/// Trains the point in `folder` as a process of its own and writes result.json, also when it fails.
/// On Ctrl-C (watch_interrupts()), or where training itself is asked to stop, it checkpoints and
/// ends, and there is no result. A point that loses an island fails; so does one without a new line
/// of metrics within `patience`, or longer where train.log_every is over ten. Throws InputError
/// when `folder` is no point's.
void train_point(const std::filesystem::path& program, const std::filesystem::path& folder,
                 Duration patience = kPointPatience);

}  // namespace atl::sweep
