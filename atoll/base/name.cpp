#include "atoll/base/name.h"

#include <algorithm>
#include <cstddef>

namespace atl {
namespace {
constexpr size_t kMaxName = 64;
}  // namespace

bool is_valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

std::string printable(std::string_view text) {
  std::string out(text.substr(0, kMaxPrinted));
  std::ranges::replace_if(out, [](char c) { return c < 0x20 || c > 0x7E; }, '?');
  if (text.size() > kMaxPrinted) out += "...";
  return out;
}

}  // namespace atl
