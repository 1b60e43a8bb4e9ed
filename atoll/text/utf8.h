#pragma once
// UTF-8 as text comes in: decoded, checked, repaired. Pure functions.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace atl::text {

/// A decoded character. Bytes that are not UTF-8 give U+FFFD and the length of the bad sequence.
struct CodePoint {
  uint32_t value = 0;
  uint32_t num_bytes = 0;
  bool valid = true;
};

/// The character at the start of `text`, which must not be empty. Bad bytes are taken in "maximal
/// subparts" (Unicode 16, section 3.9), as Python's errors="replace" and Rust's from_utf8_lossy do.
CodePoint decode_utf8(std::string_view text);

/// The length of the longest prefix that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);

/// A copy of `text` with U+FFFD for each bad sequence; adds their number to `num_replaced`.
std::string repair_utf8(std::string_view text, int64_t& num_replaced);

void append_utf8(std::string& text, uint32_t code_point);

}  // namespace atl::text
