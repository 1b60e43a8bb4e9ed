#pragma once
// What Python's str does, on UTF-8: places are code points, white space, letter case and what repr
// escapes are Python's (tables: scripts/unicode_tables.py, of Python 3.11). Pure functions.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl::text {

inline constexpr size_t kNowhere = std::string_view::npos;

/// Python's str.isspace of one character: also the four separators of ASCII.
bool is_python_space(uint32_t code);
size_t count_characters(std::string_view text);
/// Where the character with this number begins, in bytes; the text's size behind the last.
size_t byte_of_character(std::string_view text, size_t character);
std::vector<uint32_t> characters(std::string_view text);

/// The first place of `part` at or behind `from`, in bytes, or kNowhere. In linear time.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
size_t find_last_text(std::string_view text, std::string_view part);

enum class Side : uint8_t { kLeft = 1, kRight = 2, kBoth = 3 };
/// Without the characters of `chars` (white space where it is not given) at its ends.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> chars = {});
/// `separator` must not be empty; without one, runs of white space separate. Below 0: no maximum.
std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t max_splits);
std::vector<std::string_view> split_right(std::string_view text,
                                          std::optional<std::string_view> separator,
                                          int64_t max_splits);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// How often `part` occurs, without overlap.
size_t count_text(std::string_view text, std::string_view part);
/// Below 0: all of them. An empty `from` stands before each character and at the end.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t max_count);

std::string to_upper(std::string_view text);
/// Greek capital sigma is refused with InputError: its small form depends on the word around it.
std::string to_lower(std::string_view text);
/// Each character's small form, whatever stands around it, by Unicode 17: so are texts made small
/// in Rust, and Python lower() where both know the character.
std::string to_lower_each(std::string_view text);
/// str.capitalize(): the first character in title case, the rest small.
std::string capitalize(std::string_view text);
/// str.title(): the first letter of each run of letters.
std::string to_title(std::string_view text);
bool is_upper(std::string_view text);
bool is_lower(std::string_view text);

/// repr(text).
std::string quote(std::string_view text);

}  // namespace atl::text
