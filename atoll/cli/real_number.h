#pragma once
// The check of options that take a real number. CLI11's own takes "nan" and "inf", and its
// PositiveNumber too.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "atoll/base/number.h"

namespace atl::cli {

/// A check for add_option(): a finite number in [min, max]. The message names the range.
inline CLI::Validator real_number(double min, double max) {
  const auto check = [min, max](std::string& text) -> std::string {
    const auto value = number_in<double>(text);
    if (value && *value >= min && *value <= max) return "";
    return fmt::format("must be a number from {} to {}, not '{}'", min, max, text);
  };
  return {check, ""};
}

}  // namespace atl::cli
