#pragma once
#include <string>

namespace atl::run {

/// Bits per second: "20mbit" is 20e6; also bit, kbit, gbit. Throws UsageError.
double parse_link_rate(const std::string& text);

}  // namespace atl::run
