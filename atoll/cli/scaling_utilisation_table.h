#pragma once
// The table of `atoll scaling simulate`: utilisation on the papers' grid, a row for each method.
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/laws/utilisation.h"

namespace atl::cli {

/// A row of the table, a curve of the picture.
struct UtilisationRow {
  std::string name;
  laws::Workload work;
  // What follows is there once the row is simulated.
  std::array<double, laws::kGridSize> grid{};
  double at_gbps = 0;            // Utilisation at the bandwidth that was asked for.
  int64_t steps = 0;             // The fewest of all bandwidths.
  double expected_failures = 0;  // The fewest of all bandwidths.
};

/// Fills the rows; `gbps` 0: the grid alone. With a bar on a terminal if it takes long.
void simulate_rows(std::vector<UtilisationRow>& rows, double gbps, bool has_bar);

nlohmann::ordered_json utilisation_json(const UtilisationRow& row,
                                        const std::vector<double>& targets, double gbps);
void print_utilisation(const std::vector<UtilisationRow>& rows, const std::vector<double>& targets,
                       double gbps);
/// Below the table: how many the numbers rest on. Nothing where there are none.
void print_failures(const std::vector<UtilisationRow>& rows);
/// Says on stderr when what failures cost is left to chance.
void note_few_failures(const std::vector<UtilisationRow>& rows);

}  // namespace atl::cli
