#pragma once
// A number with its unit, as people write it: "20mbit", "14d", "80GB". Pure.
#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

namespace atl {

struct Unit {
  std::string_view name;
  double factor = 1;  // One of it, in the unit that all are told in.
};

/// Positive and finite; nothing when the text is anything but a number and one of the units, side
/// by side.
inline std::optional<double> parse_quantity(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view name(stop, static_cast<size_t>(end - stop));
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    value *= unit.factor;
    if (value > 0 && std::isfinite(value)) return value;
  }
  return std::nullopt;
}

inline constexpr Unit kRateUnits[] = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
inline constexpr Unit kTimeUnits[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                                      {"min", 60},  {"h", 3600},  {"d", 86400}};
inline constexpr Unit kByteUnits[] = {{"B", 1},
                                      {"kB", 1e3},
                                      {"MB", 1e6},
                                      {"GB", 1e9},
                                      {"TB", 1e12},
                                      {"KiB", 1024},
                                      {"MiB", 1024.0 * 1024},
                                      {"GiB", 1024.0 * 1024 * 1024},
                                      {"TiB", 1024.0 * 1024 * 1024 * 1024}};

}  // namespace atl
