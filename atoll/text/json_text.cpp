#include "atoll/text/json_text.h"

#include "atoll/base/number.h"

namespace atl::text {
namespace {

constexpr size_t kEscapeBytes = 6;  // \uXXXX

/// What a \uXXXX at `at` stands for; 0 where there is none.
uint32_t escape_at(std::string_view json, size_t at) {
  if (json.substr(at, 2) != "\\u" || json.size() - at < kEscapeBytes) return 0;
  return number_in<uint32_t>(json.substr(at + 2, kEscapeBytes - 2), 16).value_or(0);
}

bool is_high(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

}  // namespace

int64_t repair_surrogates(std::string& json) {
  int64_t num_replaced = 0;
  for (size_t at = json.find('\\'); at < json.size(); at = json.find('\\', at)) {
    const uint32_t unit = escape_at(json, at);
    if (is_high(unit) && is_low(escape_at(json, at + kEscapeBytes))) {
      at += 2 * kEscapeBytes;
      continue;
    }
    if (is_high(unit) || is_low(unit)) {
      json.replace(at, kEscapeBytes, "\\ufffd");
      ++num_replaced;
    }
    at += 2;  // The escaped character may be a backslash.
  }
  return num_replaced;
}

}  // namespace atl::text
