#pragma once
// What a sweep leaves and prints: report.md, tables, a picture; one JSON object.
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "atoll/sweep/sweep_driver.h"

namespace atl::cli {

/// The results of a sweep so far.
struct SweepOutput {
  sweep::SweepState state;
  std::vector<sweep::Family> families;
  nlohmann::ordered_json json;
  std::string report;     // Markdown.
  size_t num_points = 0;  // That are over.
  size_t num_failed = 0;
};

SweepOutput sweep_output(const std::string& name, const sweep::SweepSettings& settings,
                         const sweep::SweepDriver& driver);

/// Writes report.md, results.csv (that of the first family; of others results-NAME.csv), loss.svg.
void write_sweep_output(const SweepOutput& output, const std::filesystem::path& folder);

/// The table of cells that a person reads at the end.
std::string sweep_table(const SweepOutput& output);

}  // namespace atl::cli
