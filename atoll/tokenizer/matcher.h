#pragma once
// What a normalizer replaces and a pre-tokenizer splits by. Immutable, shared by threads.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace atl::tokenizer {

/// Where matches of `text` are, as text::Regex::each_match() tells them.
using Matcher = std::function<void(std::string_view text,
                                   const std::function<void(size_t begin, size_t end)>& on_match)>;

Matcher match_regex(std::string pattern);
/// An empty one matches before each character and at the end.
Matcher match_string(std::string part);
/// Each character of which `is_one` says so.
Matcher match_characters(std::function<bool(uint32_t)> is_one);
/// Words that are cut by hand: all of a text. `Words` as gpt2_words.h has them.
template <typename Words>
Matcher match_words(Words words) {
  return [words](std::string_view text, const auto& on_match) {
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;) {
      const char* const after = words.next(at, end);
      on_match(static_cast<size_t>(at - text.data()), static_cast<size_t>(after - text.data()));
      at = after;
    }
  };
}
/// \w+|[^\w\s]+ as the library's other engine reads it, to which a joiner is a word's.
Matcher match_runs();

}  // namespace atl::tokenizer
