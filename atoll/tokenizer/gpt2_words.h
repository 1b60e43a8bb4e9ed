#pragma once
// GPT-2's pre-tokeniser, by hand: where a regex engine would try
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// at each position, four classes and one look ahead decide. Every character belongs to a word, so a
// text is cut without gaps.
//
// Another pre-tokeniser is another class with the same next() and safe_cut().
#include <string_view>

#include "atoll/text/char_reader.h"

namespace atl::tokenizer {

class Gpt2Words {
 public:
  /// The end of the word that starts at `begin`; the text must be valid UTF-8 and not empty.
  const char* next(const char* begin, const char* end) const {
    const char* at = begin;
    if (*at == '\'') {
      if (const size_t length = contraction({at, static_cast<size_t>(end - at)}))
        return at + length;
    }
    // One space may lead a word of any of the three other classes.
    if (*at == ' ' && end - at > 1) ++at;
    const char* after_first = at;
    const text::CharClass first = reader_.take(after_first, end);
    if (first != text::CharClass::kSpace) return reader_.run_end(first, after_first, end);
    return text::cut_spaces(begin, reader_.run_end(text::CharClass::kSpace, begin, end), end);
  }

  size_t safe_cut(std::string_view text, size_t wanted) const {
    return text::cut_at_lone_space(text, wanted);
  }

 private:
  static size_t contraction(std::string_view text) {
    if (text.size() < 2) return 0;
    const char c = text[1];
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
    if (text.size() < 3) return 0;
    const char d = text[2];
    return (c == 'r' && d == 'e') || (c == 'v' && d == 'e') || (c == 'l' && d == 'l') ? 3 : 0;
  }

  text::CharReader reader_;
};

}  // namespace atl::tokenizer
