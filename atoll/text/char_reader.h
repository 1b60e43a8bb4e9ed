#pragma once
// Characters and their classes as word cutters read them: ASCII by one table look-up, the rest by
// decoding. In a header because the encoder's inner loop is made of it. Immutable.
#include <array>
#include <cstdint>
#include <string_view>

#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"

namespace atl::text {

class CharReader {
 public:
  CharReader() : classes_(char_class_table()) {
    for (uint32_t byte = 0; byte < 128; ++byte) {
      ascii_[byte] = static_cast<uint8_t>(char_class(classes_, byte));
    }
    for (uint32_t byte = 128; byte < 256; ++byte) ascii_[byte] = kNotAscii;
  }

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

  /// The end of the run of `run` that `at` is in.
  const char* run_end(CharClass run, const char* at, const char* end) const {
    for (;;) {
      while (at < end && ascii_[static_cast<uint8_t>(*at)] == static_cast<uint8_t>(run)) ++at;
      if (at == end || ascii_[static_cast<uint8_t>(*at)] != kNotAscii) return at;
      const char* after = at;
      if (take(after, end) != run) return at;
      at = after;
    }
  }

 private:
  static constexpr uint8_t kNotAscii = 0xff;

  const CharClass* classes_;
  std::array<uint8_t, 256> ascii_{};
};

/// \s+(?!\S)|\s+ of a run of white space: its last character belongs to what follows, unless the
/// run is nothing else.
inline const char* cut_spaces(const char* begin, const char* run, const char* end) {
  if (run == end) return run;
  const char* last = run - 1;
  while ((static_cast<uint8_t>(*last) & 0xC0U) == 0x80) --last;
  return last == begin ? run : last;
}

/// A place at or behind `wanted` where a word surely ends, whatever pattern cuts words: before a
/// space that stands between two non-spaces of ASCII. Without one, the end of the text.
inline size_t cut_at_lone_space(std::string_view text, size_t wanted) {
  const auto is_ink = [](char c) { return c > ' ' && c < 0x7f; };
  for (size_t at = wanted; at + 1 < text.size(); ++at) {
    if (text[at] == ' ' && is_ink(text[at - 1]) && is_ink(text[at + 1])) return at;
  }
  return text.size();
}

}  // namespace atl::text
