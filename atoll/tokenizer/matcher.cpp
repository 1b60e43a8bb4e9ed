#include "atoll/tokenizer/matcher.h"

#include <memory>
#include <utility>

#include "atoll/text/regex.h"
#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"

namespace atl::tokenizer {

Matcher match_regex(std::string pattern) {
  const auto regex = std::make_shared<const text::Regex>(std::move(pattern));
  return
      [regex](std::string_view text, const auto& on_match) { regex->each_match(text, on_match); };
}

Matcher match_string(std::string part) {
  if (part.empty()) return match_regex("");
  return [part = std::move(part)](std::string_view text, const auto& on_match) {
    for (size_t at = text.find(part); at != std::string_view::npos;
         at = text.find(part, at + part.size())) {
      on_match(at, at + part.size());
    }
  };
}

Matcher match_characters(std::function<bool(uint32_t)> is_one) {
  return [is_one = std::move(is_one)](std::string_view text, const auto& on_match) {
    for (size_t at = 0; at < text.size();) {
      const text::CodePoint next = text::decode_utf8(text.substr(at));
      if (is_one(next.value)) on_match(at, at + next.num_bytes);
      at += next.num_bytes;
    }
  };
}

Matcher match_runs() {
  const auto kind_of = [](uint32_t code) {
    return text::is_space(code) ? 0 : text::is_word_char(code) ? 1 : 2;
  };
  return [kind_of](std::string_view text, const auto& on_match) {
    size_t begin = 0;  // Of the run.
    int kind = 0;
    for (size_t at = 0; at < text.size();) {
      const text::CodePoint next = text::decode_utf8(text.substr(at));
      if (const int now = kind_of(next.value); now != kind) {
        if (kind != 0) on_match(begin, at);
        begin = at;
        kind = now;
      }
      at += next.num_bytes;
    }
    if (kind != 0) on_match(begin, text.size());
  };
}

}  // namespace atl::tokenizer
