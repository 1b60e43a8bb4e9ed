#pragma once
// What a fit found, as `atoll scaling fit --json` prints it.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/laws/comparable.h"
#include "atoll/laws/fit.h"

namespace atl::cli {

constexpr const char* kPapersCount = "vocab * hidden + layers * (4 hidden^2 + 2 hidden ff)";
constexpr const char* kColumnCount = "as the column params counts";

/// What was left out of a table, and of which kind the others are.
void add_comparable_json(nlohmann::ordered_json& json, const laws::Comparable& compared);

/// `count` says what `params` counts; `runs` is the table that was fitted.
nlohmann::ordered_json fit_json(const laws::FitReport& report, const laws::FitOptions& options,
                                const std::string& count, const std::vector<laws::Run>& runs);

}  // namespace atl::cli
