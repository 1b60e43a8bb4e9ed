// Letter case and repr of Python's str, by tables.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "atoll/base/error.h"
#include "atoll/text/python_text.h"
#include "atoll/text/utf8.h"

namespace atl::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};
struct SimpleCase {
  uint32_t first;
  uint32_t last;
  int32_t shifts[3];  // To upper, lower, title case.
};
struct SpecialCase {
  uint32_t first;
  uint32_t forms[3][3];  // Zeros behind the last character.
};
enum Form { kUpper, kLower, kTitle };

constexpr Range kCased[] = {
#include "atoll/text/unicode_cased.inc"
};
constexpr Range kEscaped[] = {
#include "atoll/text/unicode_escaped.inc"
};
constexpr SimpleCase kSimpleCases[] = {
#include "atoll/text/unicode_cases.inc"
};
constexpr SpecialCase kSpecialCases[] = {
#include "atoll/text/unicode_special_cases.inc"
};

/// The last entry that begins at or before `code`, or null.
template <typename Entry, size_t kSize>
const Entry* find(const Entry (&table)[kSize], uint32_t code) {
  const Entry* found =
      std::upper_bound(std::begin(table), std::end(table), code,
                       [](uint32_t value, const Entry& entry) { return value < entry.first; });
  return found == std::begin(table) ? nullptr : found - 1;
}

template <size_t kSize>
bool is_in(const Range (&table)[kSize], uint32_t code) {
  const Range* found = find(table, code);
  return found && code <= found->last;
}

void append_case(std::string& text, uint32_t code, Form form) {
  if (const SpecialCase* special = find(kSpecialCases, code); special && special->first == code) {
    for (const uint32_t each : special->forms[form]) {
      if (each != 0) append_utf8(text, each);
    }
    return;
  }
  if (form == kLower && code == 0x3a3) {
    throw InputError(
        "the small form of the Greek letter sigma depends on its word, which is not supported");
  }
  const SimpleCase* simple = find(kSimpleCases, code);
  const int32_t shift = simple && code <= simple->last ? simple->shifts[form] : 0;
  append_utf8(text, static_cast<uint32_t>(static_cast<int32_t>(code) + shift));
}

/// Cased since Python's Unicode 14, and what is added for the small form.
struct NewCase {
  uint32_t first, last;
  int32_t shift;
};
constexpr NewCase kNewCases[] = {{0x1c89, 0x1c89, 1},      {0xa7cb, 0xa7cb, 0x264 - 0xa7cb},
                                 {0xa7cc, 0xa7cc, 1},      {0xa7ce, 0xa7ce, 1},
                                 {0xa7d2, 0xa7d2, 1},      {0xa7d4, 0xa7d4, 1},
                                 {0xa7da, 0xa7da, 1},      {0xa7dc, 0xa7dc, 0x19b - 0xa7dc},
                                 {0x10d50, 0x10d65, 0x20}, {0x16ea0, 0x16eb8, 0x1b}};

/// form_of(is it the first, is the character before it a cased one).
template <typename FormOf>
std::string with_case(std::string_view text, const FormOf& form_of) {
  std::string result;
  result.reserve(text.size());
  bool is_first = true;
  bool follows_cased = false;
  for (const uint32_t code : characters(text)) {
    append_case(result, code, form_of(is_first, follows_cased));
    is_first = false;
    follows_cased = is_in(kCased, code);
  }
  return result;
}

bool has_only(std::string_view text, Form wanted) {
  bool found = false;
  for (const uint32_t code : characters(text)) {
    if (!is_in(kCased, code)) continue;
    std::string form;
    std::string itself;
    append_utf8(itself, code);
    // A character is in upper case when lower case changes it, and in lower case otherwise (also
    // those that have no other form); in title case it is neither.
    std::string upper;
    std::string lower;
    append_case(upper, code, kUpper);
    if (code == 0x3a3) {
      lower = "\u03c3";
    } else {
      append_case(lower, code, kLower);
    }
    const bool is_upper_case = lower != itself && upper == itself;
    const bool is_lower_case = lower == itself;
    if (!(wanted == kUpper ? is_upper_case : is_lower_case)) return false;
    found = true;
  }
  return found;
}

}  // namespace

std::string to_upper(std::string_view text) {
  return with_case(text, [](bool, bool) { return kUpper; });
}
std::string to_lower(std::string_view text) {
  return with_case(text, [](bool, bool) { return kLower; });
}
std::string to_lower_each(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const uint32_t code : characters(text)) {
    const NewCase* added = find(kNewCases, code);
    if (code == 0x3a3) {
      append_utf8(result, 0x3c3);
    } else if (added && code <= added->last) {
      append_utf8(result, static_cast<uint32_t>(static_cast<int32_t>(code) + added->shift));
    } else {
      append_case(result, code, kLower);
    }
  }
  return result;
}
std::string capitalize(std::string_view text) {
  return with_case(text, [](bool is_first, bool) { return is_first ? kTitle : kLower; });
}
std::string to_title(std::string_view text) {
  return with_case(text, [](bool, bool follows_cased) { return follows_cased ? kLower : kTitle; });
}
bool is_upper(std::string_view text) { return has_only(text, kUpper); }
bool is_lower(std::string_view text) { return has_only(text, kLower); }

std::string quote(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char mark = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string quoted(1, mark);
  for (const uint32_t code : characters(text)) {
    constexpr std::string_view kShort = "\n\r\t";
    constexpr std::string_view kLetters = "nrt";
    const size_t place = code < 128 ? kShort.find(static_cast<char>(code)) : kNowhere;
    if (place != kNowhere) {
      quoted += '\\';
      quoted += kLetters[place];
    } else if (code == '\\' || code == static_cast<uint32_t>(mark)) {
      quoted += '\\';
      quoted += static_cast<char>(code);
    } else if (!is_in(kEscaped, code)) {
      append_utf8(quoted, code);
    } else if (code < 0x100) {
      quoted += fmt::format("\\x{:02x}", code);
    } else if (code < 0x10000) {
      quoted += fmt::format("\\u{:04x}", code);
    } else {
      quoted += fmt::format("\\U{:08x}", code);
    }
  }
  quoted += mark;
  return quoted;
}

}  // namespace atl::text
