#pragma once
// Names and texts that come from strangers. Pure, thread-safe.
#include <cstddef>
#include <string>
#include <string_view>

namespace atl {

/// 1 to 64 of letters, digits, '-', '_' and '.'.
bool is_valid_name(std::string_view name);

inline constexpr size_t kMaxPrinted = 400;
/// A stranger's text, fit for a log: other than printable ASCII becomes '?', and it is cut at
/// kMaxPrinted.
std::string printable(std::string_view text);

}  // namespace atl
