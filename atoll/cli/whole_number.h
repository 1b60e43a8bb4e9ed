#pragma once
// The check of options that take a whole number. CLI11's own conversion silently takes the nearest
// number that the type holds, and its ranges print bounds as doubles.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>

#include "atoll/base/number.h"

namespace atl::cli {

/// A check for add_option(): decimal digits, in [min, max]. The message names the range.
template <typename T>
CLI::Validator whole_number(T min, T max = std::numeric_limits<T>::max()) {
  const auto check = [min, max](std::string& text) -> std::string {
    const auto value = number_in<T>(text);
    if (value && *value >= min && *value <= max) {
      text = fmt::format("{}", *value);  // CLI11 would read 010 as octal.
      return "";
    }
    return fmt::format("must be a whole number from {} to {}, not '{}'", min, max, text);
  };
  return {check, ""};
}

}  // namespace atl::cli
