#include "atoll/run/link_rate.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>

#include "atoll/base/error.h"

namespace atl::run {

double parse_link_rate(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  const std::string unit(parsed.ptr, end);
  static const std::map<std::string, double> units = {
      {"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  if (parsed.ec != std::errc() || !units.contains(unit) || !(value > 0) || !std::isfinite(value)) {
    throw UsageError(fmt::format("'{}' is no link rate; write for example 20mbit", text));
  }
  return value * units.at(unit);
}

}  // namespace atl::run
