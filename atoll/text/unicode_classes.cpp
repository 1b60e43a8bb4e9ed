#include "atoll/text/unicode_classes.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace atl::text {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

constexpr Range kLetters[] = {
#include "atoll/text/unicode_letters.inc"
};
constexpr Range kNumbers[] = {
#include "atoll/text/unicode_numbers.inc"
};
constexpr Range kSpaces[] = {
#include "atoll/text/unicode_spaces.inc"
};
constexpr Range kWords[] = {
#include "atoll/text/unicode_words.inc"
};
constexpr Range kPunctuation[] = {
#include "atoll/text/unicode_punctuation.inc"
};
constexpr Range kAccents[] = {
#include "atoll/text/unicode_accents.inc"
};
constexpr Range kNonspacing[] = {
#include "atoll/text/unicode_nonspacing.inc"
};
constexpr Range kUnseen[] = {
#include "atoll/text/unicode_unseen.inc"
};

template <size_t kSize>
bool is_in(const Range (&table)[kSize], uint32_t code_point) {
  const Range* found =
      std::upper_bound(std::begin(table), std::end(table), code_point,
                       [](uint32_t code, const Range& range) { return code < range.first; });
  return found != std::begin(table) && code_point <= found[-1].last;
}

std::vector<CharClass> make_table() {
  std::vector<CharClass> table(kClassLimit, CharClass::kOther);
  const auto mark = [&](const auto& ranges, CharClass value) {
    for (const Range& range : ranges) {
      std::fill(table.begin() + range.first, table.begin() + range.last + 1, value);
    }
  };
  mark(kLetters, CharClass::kLetter);
  mark(kNumbers, CharClass::kNumber);
  mark(kSpaces, CharClass::kSpace);
  return table;
}

}  // namespace

const CharClass* char_class_table() {
  static const std::vector<CharClass> table = make_table();
  return table.data();
}

bool is_word_char(uint32_t code_point) { return is_in(kWords, code_point); }
bool is_punctuation(uint32_t code_point) { return is_in(kPunctuation, code_point); }
bool is_accent(uint32_t code_point) { return is_in(kAccents, code_point); }
bool is_nonspacing(uint32_t code_point) { return is_in(kNonspacing, code_point); }
bool is_unseen(uint32_t code_point) { return is_in(kUnseen, code_point); }

}  // namespace atl::text
