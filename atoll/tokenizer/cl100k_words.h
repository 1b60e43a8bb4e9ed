#pragma once
// The pre-tokeniser of cl100k, Llama 3 and OLMo 2, and with numbers of one digit that of Qwen, by
// hand as gpt2_words.h does it:
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
//   |\s*[\r\n]+|\s+(?!\S)|\s+
#include <string_view>

#include "atoll/text/char_reader.h"

namespace atl::tokenizer {

class Cl100kWords {
 public:
  explicit Cl100kWords(int max_digits) : max_digits_(max_digits) {}

  /// The end of the word that starts at `begin`; the text must be valid UTF-8 and not empty.
  const char* next(const char* begin, const char* end) const {
    if (*begin == '\'') {
      if (const size_t length = contraction({begin, static_cast<size_t>(end - begin)})) {
        return begin + length;
      }
    }
    const char* after = begin;
    const text::CharClass first = reader_.take(after, end);
    if (first == text::CharClass::kLetter) return reader_.run_end(first, after, end);
    if (first == text::CharClass::kNumber) return digits_end(after, end);
    if (after < end && !is_newline(*begin)) {
      const char* after_second = after;
      const text::CharClass second = reader_.take(after_second, end);
      // One character of any kind may lead letters, a space also signs.
      if (second == text::CharClass::kLetter) return reader_.run_end(second, after_second, end);
      if (second == text::CharClass::kOther && *begin == ' ') return signs_end(after_second, end);
    }
    if (first == text::CharClass::kOther) return signs_end(after, end);
    return spaces_end(begin, after, end);
  }

  size_t safe_cut(std::string_view text, size_t wanted) const {
    return text::cut_at_lone_space(text, wanted);
  }

 private:
  static bool is_newline(char c) { return c == '\r' || c == '\n'; }

  const char* digits_end(const char* at, const char* end) const {
    for (int digits = 1; digits < max_digits_ && at < end; ++digits) {
      const char* after = at;
      if (reader_.take(after, end) != text::CharClass::kNumber) break;
      at = after;
    }
    return at;
  }

  const char* signs_end(const char* at, const char* end) const {
    at = reader_.run_end(text::CharClass::kOther, at, end);
    while (at < end && is_newline(*at)) ++at;
    return at;
  }

  /// Of white space all up to its last newline; without one, what cut_spaces() takes.
  const char* spaces_end(const char* begin, const char* at, const char* end) const {
    const char* const run = reader_.run_end(text::CharClass::kSpace, at, end);
    for (const char* last = run; last > begin; --last) {
      if (is_newline(last[-1])) return last;
    }
    return text::cut_spaces(begin, run, end);
  }

  /// Case does not matter here, and U+017F (long s) is an s then.
  static size_t contraction(std::string_view text) {
    if (text.size() < 2) return 0;
    const char c = lower(text[1]);
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
    if (text.size() < 3) return 0;
    if (text[1] == '\xC5' && text[2] == '\xBF') return 3;
    const char d = lower(text[2]);
    return (c == 'r' && d == 'e') || (c == 'v' && d == 'e') || (c == 'l' && d == 'l') ? 3 : 0;
  }
  static char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

  text::CharReader reader_;
  int max_digits_;
};

}  // namespace atl::tokenizer
