#pragma once
// JSON has no NaN and no infinity: they are written as null.
#include <limits>
#include <nlohmann/json.hpp>

namespace atl::run {

/// The number; NaN for null.
inline double number(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace atl::run
