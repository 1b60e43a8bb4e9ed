#pragma once
// The classes of Unicode 16 that pre-tokenisers split by: \p{L}, \p{N}, \s (White_Space). From
// tables that scripts/unicode_tables.py generates: ICU and most regex engines on today's systems
// know an older Unicode, and one character in another class is another token. Pure, thread-safe.
#include <cstdint>

namespace atl::text {

enum class CharClass : uint8_t { kOther, kLetter, kNumber, kSpace };

/// One class per code point below kClassLimit; above it all are kOther.
inline constexpr uint32_t kClassLimit = 0x32400;
const CharClass* char_class_table();

inline CharClass char_class(const CharClass* table, uint32_t code_point) {
  return code_point < kClassLimit ? table[code_point] : CharClass::kOther;
}

inline bool is_space(uint32_t code_point) {
  return char_class(char_class_table(), code_point) == CharClass::kSpace;
}
inline bool is_number(uint32_t code_point) {
  return char_class(char_class_table(), code_point) == CharClass::kNumber;
}
/// \w of regular expressions: alphabetic, a mark, a digit, a connector. For rare use: it searches.
bool is_word_char(uint32_t code_point);
/// Punctuation as `tokenizers` has it: that of Unicode 8, and the symbols of ASCII. It searches.
bool is_punctuation(uint32_t code_point);
/// What its normalizers take away: marks (of Unicode 9), marks that take no space (of 8), and what
/// is not seen (controls, private use, U+FFFD). They search.
bool is_accent(uint32_t code_point);
bool is_nonspacing(uint32_t code_point);
bool is_unseen(uint32_t code_point);

}  // namespace atl::text
