#pragma once
// What a run of several islands came to: the table that a person reads at its end, and one record
// for programs. LibTorch-free.
#include <filesystem>
#include <string>
#include <vector>

#include "atoll/run/config.h"
#include "atoll/run/progress.h"

namespace atl::run {

/// One summary for the whole run, as `atoll train --json` prints it: rates, bytes and seconds are
/// sums.
Summary combine(const std::vector<Summary>& islands, const std::filesystem::path& folder);

/// Waiting is told of the time in which an island was there and trained; how long it was away,
/// where any was, in a column of its own.
std::string result_table(const RunConfig& config, const std::vector<Summary>& islands);

}  // namespace atl::run
