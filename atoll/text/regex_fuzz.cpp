// Patterns and texts from strangers: matches are in order and in the text, or the pattern is
// refused.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/check.h"
#include "atoll/base/error.h"
#include "atoll/text/regex.h"
#include "atoll/text/utf8.h"

namespace {

void try_pattern(const std::string& pattern, std::string_view text) {
  size_t last = 0;
  try {
    atl::text::Regex(pattern).each_match(text, [&](size_t begin, size_t end) {
      ATOLL_CHECK(last <= begin && begin <= end && end <= text.size());
      last = end;
    });
  } catch (const atl::InputError&) {  // Refused, as it may be.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kParts[] = {
      "\\p{L}", "\\w", "[^", "[",  "]",     "[:punct:]", "(?i:", "(?<=",    "(?!", "(",
      ")",      "+",   "*",  "?",  "{1,3}", "|",         "\\K",  "\\P{Mn}", "a",   "\u00e9",
      " ",      "-",   "\\", "&&", "^",     "$",         "(?m)", "\\1",     "."};
  std::string pattern;
  std::string text;
  for (size_t i = 0; i < size && i < 64; ++i) {
    (i % 2 == 0 ? pattern : text) += kParts[data[i] % std::size(kParts)];
  }
  try_pattern(pattern, text);
  int64_t num_replaced = 0;
  const std::string any =
      atl::text::repair_utf8({reinterpret_cast<const char*>(data), size}, num_replaced);
  try_pattern(any.substr(0, any.find('\n')), any);
  return 0;
}
