#include "atoll/run/link_rate.h"

#include <fmt/format.h>

#include "atoll/base/error.h"
#include "atoll/base/quantity.h"

namespace atl::run {

double parse_link_rate(const std::string& text) {
  const auto rate = parse_quantity(text, kRateUnits);
  if (!rate) {
    throw UsageError(fmt::format("'{}' is no link rate; write for example 20mbit", text));
  }
  return *rate;
}

}  // namespace atl::run
