#pragma once
// What an island tells of its training: to the files of its run directory (metrics.h), and to who
// watches. What is known before training begins waits for the files: steps that are computed again
// may turn out to be void. LibTorch-free. One owner thread.
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/base/event.h"
#include "atoll/run/metrics.h"
#include "atoll/run/progress.h"

namespace atl::run {

class Records {
 public:
  /// `on_progress` gets what is shown; it may be empty. `clock` outlives this object.
  Records(std::filesystem::path folder, const Clock& clock,
          std::function<void(const Progress&)> on_progress, EventSink events);

  /// Opens the files, from which what is of later steps than `step` is taken out.
  void begin(int64_t step);
  bool has_begun() const { return metrics_.has_value(); }
  /// A line of metrics.jsonl, which is shown too.
  void add(const Progress& progress);
  /// A line of rounds.jsonl.
  void add_round(const std::string& line);
  /// Shows it, with the validation that was added last.
  void show(Progress progress);
  /// Nothing was shown for long: steps are slow, or lines are.
  bool is_stale() const;

 private:
  std::filesystem::path folder_;
  const Clock& clock_;
  std::function<void(const Progress&)> on_progress_;
  EventSink events_;
  std::optional<Metrics> metrics_;
  std::vector<Progress> waiting_;
  std::vector<std::string> waiting_rounds_;
  std::optional<double> validation_;
  Time shown_{};
};

}  // namespace atl::run
