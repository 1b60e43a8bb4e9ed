#pragma once
// Runs a sweep: asks the plan (sweep/sweep_plan.h) what to train, an executor to train it, and
// keeps what comes of it in the database. Alone in its folder: points/ID, one folder for each point
// under way; data/, the token store that all read; points.jsonl, the results as text.
// LibTorch-free. One thread.
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "atoll/base/clock.h"
#include "atoll/sweep/point_executor.h"
#include "atoll/sweep/sweep_database.h"
#include "atoll/sweep/sweep_results.h"
#include "atoll/sweep/sweep_settings.h"

namespace atl::sweep {

struct SweepOptions {
  std::filesystem::path folder;
  std::filesystem::path exported;  // The results as text, here too; empty: nowhere else.
  int64_t cores = 1;               // That one point may keep busy.
  double memory_bytes = 0;         // A point that needs more is not trained; 0: no bound.
  bool keep = false;               // The folders of points that are over.
};

/// What is still to come, if nothing else turns out than what is known.
struct Outlook {
  size_t num_points = 0;
  size_t num_too_large = 0;  // Points that need more memory than there is.
  double tokens = 0;
  double core_seconds = 0;
  bool is_timed = false;     // By points that have finished; else the time is a guess.
  double largest_bytes = 0;  // Of one point.
};

class SweepDriver {
 public:
  /// `settings` know their store (SweepSettings::use). All must outlive it.
  SweepDriver(const SweepSettings& settings, SweepDatabase& database, SweepOptions options);

  /// Forgets that points failed: they are trained again.
  void retry_failed();
  /// Takes over what a driver that is gone has left: results that nobody has read, points under
  /// way.
  void resume(PointExecutor& executor);
  /// Trains until nothing is left that there is memory for, or until interrupts are noticed and
  /// what runs has ended. False: it was interrupted.
  bool train(PointExecutor& executor, const Clock& clock);

  SweepState state() const;
  /// Those with the same key once: places of several grids may come to the same settings.
  std::vector<SweepPoint> distinct(std::vector<SweepPoint> points) const;
  Known known() const;
  Outlook outlook() const;
  /// What is missing because it would need more memory than there is; empty: nothing. Nothing is
  /// recorded of such a point: it is trained where there is more.
  std::string shortage() const;
  /// The row of a point that is over.
  const PointRow* row(const SweepPoint& point) const;
  const std::string& key(const SweepPoint& point) const;
  PointTask task(const SweepPoint& point) const;
  /// Writes the results as text.
  void export_points() const;

 private:
  /// What finished points took, of one size and number of replicas; or of all.
  struct Cost {
    double seconds = 0;
    double assumed_seconds = 0;
  };
  PlanRules rules() const;
  /// Whether anything was started, or could be told of without.
  bool start(PointExecutor& executor, const std::vector<SweepPoint>& wanted);
  bool has_memory(const PointTask& task) const;
  void finish(const PointEnd& end);
  bool goes_on(const PointEnd& end);
  /// Unless it has what the point can go on from.
  void remove_folder(const std::string& id) const;
  void record(PointRow row);
  void export_now_and_then();
  void count_costs(const SweepState& state);
  double assumed_seconds(const SweepPoint& point) const;
  int64_t cores(const SweepPoint& point) const;
  std::string progress_text(const SweepState& now, const Outlook& left, double seconds_left) const;

  const SweepSettings& settings_;
  SweepDatabase& database_;
  const SweepOptions options_;
  std::map<std::string, PointRow> rows_;          // By key; as the database has them.
  std::map<std::string, std::string> in_flight_;  // Id -> key.
  std::map<std::string, int> num_stops_;          // By id: of points that others have stopped.
  std::map<std::pair<std::string, int64_t>, Cost> costs_;
  Cost all_costs_;
  /// The largest that was measured, of a size, replicas and batch, by which activations go.
  std::map<std::tuple<std::string, int64_t, double>, double> peak_bytes_;
  bool stopping_ = false;
  size_t num_unexported_ = 0;  // Ends since the results were last written as text.
  // What is the same at every look.
  mutable std::map<SweepPoint, std::string> keys_;
  mutable std::map<SweepPoint, std::string> obstacles_;
};

/// The token store of a sweep: data.path when it is one, else made in `folder` once.
SweepStore prepare_sweep_store(const SweepSettings& settings, const std::filesystem::path& folder,
                               const Clock& clock);

}  // namespace atl::sweep
