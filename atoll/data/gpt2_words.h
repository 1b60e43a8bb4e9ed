#pragma once
// GPT-2's pre-tokeniser, by hand: where a regex engine would try
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// at each position, four classes and one look ahead decide. Every character belongs to a word, so a
// text is cut without gaps. In the header because the encoder's inner loop is made of it.
//
// Another pre-tokeniser is another class with the same next().
#include <array>
#include <cstdint>
#include <string_view>

#include "atoll/data/unicode_classes.h"
#include "atoll/data/utf8.h"

namespace atl::data {

class Gpt2Words {
 public:
  Gpt2Words() : classes_(char_class_table()) {
    for (uint32_t byte = 0; byte < 128; ++byte) {
      ascii_[byte] = static_cast<uint8_t>(char_class(classes_, byte));
    }
    for (uint32_t byte = 128; byte < 256; ++byte) ascii_[byte] = kNotAscii;
  }

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
    const CharClass first = take(after_first, end);
    if (first != CharClass::kSpace) return run_end(first, after_first, end);

    const char* run = run_end(CharClass::kSpace, begin, end);
    if (run == end) return run;
    // The last character of the run belongs to what follows, unless the run is nothing else.
    const char* last = run - 1;
    while ((static_cast<uint8_t>(*last) & 0xC0U) == 0x80) --last;
    return last == begin ? run : last;
  }

 private:
  static constexpr uint8_t kNotAscii = 0xff;

  /// The class of the character at `at`, which moves behind it.
  CharClass take(const char*& at, const char* end) const {
    const uint8_t byte_class = ascii_[static_cast<uint8_t>(*at)];
    if (byte_class != kNotAscii) {
      ++at;
      return static_cast<CharClass>(byte_class);
    }
    const CodePoint next = decode_utf8({at, static_cast<size_t>(end - at)});
    at += next.num_bytes;
    return char_class(classes_, next.value);
  }

  const char* run_end(CharClass run, const char* at, const char* end) const {
    for (;;) {
      while (at < end && ascii_[static_cast<uint8_t>(*at)] == static_cast<uint8_t>(run)) ++at;
      if (at == end || ascii_[static_cast<uint8_t>(*at)] != kNotAscii) return at;
      const char* after = at;
      if (take(after, end) != run) return at;
      at = after;
    }
  }

  static size_t contraction(std::string_view text) {
    if (text.size() < 2) return 0;
    const char c = text[1];
    if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
    if (text.size() < 3) return 0;
    const char d = text[2];
    return (c == 'r' && d == 'e') || (c == 'v' && d == 'e') || (c == 'l' && d == 'l') ? 3 : 0;
  }

  const CharClass* classes_;
  std::array<uint8_t, 256> ascii_{};
};

}  // namespace atl::data
