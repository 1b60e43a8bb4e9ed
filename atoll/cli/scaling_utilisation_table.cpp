#include "atoll/cli/scaling_utilisation_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "atoll/base/clock.h"
#include "atoll/base/progress.h"

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;

/// For who watches a table that takes long.
class SimulationBar {
 public:
  SimulationBar(size_t num_points, bool is_wanted)
      : num_points_(num_points), is_wanted_(is_wanted && ::isatty(STDERR_FILENO) == 1) {}

  void count_point() {
    ++num_done_;
    const bool takes_long = clock_.now() - start_ > std::chrono::milliseconds(500);
    if (is_wanted_ && !bar_ && takes_long && num_done_ < num_points_) {
      bar_.emplace("simulating", static_cast<double>(num_points_), clock_);
    }
    if (bar_) bar_->update(static_cast<double>(num_done_));
  }

 private:
  size_t num_points_;
  size_t num_done_ = 0;
  bool is_wanted_;
  SystemClock clock_;
  Time start_ = clock_.now();
  std::optional<ProgressBar> bar_;
};

/// The first point of the grid that reaches each target.
std::vector<std::optional<int>> reached(const UtilisationRow& row,
                                        const std::vector<double>& targets) {
  std::vector<std::optional<int>> indices;
  for (const double target : targets) indices.push_back(laws::grid_index(row.grid, target));
  return indices;
}

bool has_failures(const std::vector<UtilisationRow>& rows) {
  return rows.front().work.failures.mean_hours > 0;
}

double fewest_failures(const std::vector<UtilisationRow>& rows) {
  return std::ranges::min_element(rows, {}, &UtilisationRow::expected_failures)->expected_failures;
}

}  // namespace

void simulate_rows(std::vector<UtilisationRow>& rows, double gbps, bool has_bar) {
  SimulationBar bar(rows.size() * (laws::kGridSize + (gbps > 0 ? 1 : 0)), has_bar);
  for (UtilisationRow& row : rows) {
    const auto simulate_at = [&row, &bar](double at) {
      const laws::Simulated out = laws::simulate(row.work, at);
      const bool is_first = row.steps == 0;
      row.steps = is_first ? out.steps : std::min(row.steps, out.steps);
      row.expected_failures =
          is_first ? out.expected_failures : std::min(row.expected_failures, out.expected_failures);
      bar.count_point();
      return out.utilisation;
    };
    for (int k = 0; k < laws::kGridSize; ++k) {
      row.grid[static_cast<size_t>(k)] = simulate_at(laws::grid_gbps(k));
    }
    if (gbps > 0) row.at_gbps = simulate_at(gbps);
  }
}

Json utilisation_json(const UtilisationRow& row, const std::vector<double>& targets, double gbps) {
  Json bandwidths = Json::array();
  Json indices = Json::array();
  Json at_most = Json::array();
  for (const std::optional<int>& index : reached(row, targets)) {
    bandwidths.push_back(index ? Json(laws::grid_gbps(*index)) : Json());
    indices.push_back(index ? Json(*index) : Json());
    at_most.push_back(index == 0);
  }
  Json json = {{"method", laws::method_name(row.work.method)},
               {"targets", targets},
               {"gbps", std::move(bandwidths)},
               {"grid_index", std::move(indices)},
               {"at_most", std::move(at_most)},
               {"sync_every", row.work.sync_every},
               {"fragments", row.work.fragments},
               {"delay", row.work.delay},
               {"bits_on_the_wire", row.work.bits},
               {"steps", row.steps}};
  if (row.work.failures.mean_hours > 0) json["expected_failures"] = row.expected_failures;
  if (gbps > 0) json["at"] = {{"gbps", gbps}, {"utilisation", row.at_gbps}};
  json["name"] = row.name;
  return json;
}

void print_utilisation(const std::vector<UtilisationRow>& rows, const std::vector<double>& targets,
                       double gbps) {
  fmt::print("Gbit/s for a utilisation of\n{:<36}", "");
  for (const double target : targets) fmt::print(" {:>7}", fmt::format("{:g} %", 100 * target));
  if (gbps > 0) fmt::print("   utilisation at {:g} Gbit/s", gbps);
  fmt::print("\n");
  for (const UtilisationRow& row : rows) {
    fmt::print("{:<36}", row.name);
    for (const std::optional<int>& index : reached(row, targets)) {
      // Less than the first point may be enough.
      const char* at_most = index == 0 ? "<=" : "";
      fmt::print(" {:>7}",
                 index ? fmt::format("{}{:.4g}", at_most, laws::grid_gbps(*index)) : "none");
    }
    if (gbps > 0) fmt::print("   {:.1f} %", 100 * row.at_gbps);
    fmt::print("\n");
  }
}

void print_failures(const std::vector<UtilisationRow>& rows) {
  if (!has_failures(rows)) return;
  fmt::print("{:.4g} failures or more are expected in the time simulated, at each bandwidth\n",
             fewest_failures(rows));
}

void note_few_failures(const std::vector<UtilisationRow>& rows) {
  constexpr double kFew = 10;
  if (!has_failures(rows) || fewest_failures(rows) >= kFew) return;
  const double expected = fewest_failures(rows);
  fmt::print(stderr,
             "atoll: only {:.2g} failures are expected in the time simulated, and what they cost "
             "{}: {}\n",
             expected, expected < 1 ? "is most likely not in the table" : "is left to chance",
             rows.front().work.steps > 0 ? "give more --steps, or leave them out"
                                         : "fewer islands or layers, or a shorter --sync-every, "
                                           "take less work and leave room for more");
}

}  // namespace atl::cli
