#pragma once
// Numbers in text. Pure.
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace atl {

/// The number that all of `text` is, as std::from_chars reads it (`format`: a base, say); nothing
/// where it is none or does not fit.
template <typename T, typename... Format>
std::optional<T> number_in(std::string_view text, Format... format) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, format...);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace atl
