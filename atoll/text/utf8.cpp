#include "atoll/text/utf8.h"

#include <cstring>

namespace atl::text {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

uint8_t byte_at(std::string_view text, size_t index) { return static_cast<uint8_t>(text[index]); }

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/// What a first byte promises: its length, its own bits, and the range of its second byte, which
/// alone rules out overlong forms, surrogates and values over U+10FFFF.
struct Lead {
  uint32_t num_bytes;
  uint32_t bits;
  uint8_t second_min;
  uint8_t second_max;
};

Lead read_lead(uint8_t first) {
  if (first < 0x80) return {1, first, 0, 0};
  if (first < 0xC2) return {0, 0, 0, 0};
  if (first < 0xE0) return {2, first & 0x1FU, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0xD, 0x80, 0x9F};
  if (first < 0xF0) return {3, first & 0xFU, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0, 0x90, 0xBF};
  if (first < 0xF4) return {4, first & 0x7U, 0x80, 0xBF};
  if (first == 0xF4) return {4, 4, 0x80, 0x8F};
  return {0, 0, 0, 0};
}

}  // namespace

CodePoint decode_utf8(std::string_view text) {
  const Lead lead = read_lead(byte_at(text, 0));
  if (lead.num_bytes == 1) return {lead.bits, 1, true};
  if (lead.num_bytes == 0) return {kReplacement, 1, false};
  uint32_t value = lead.bits;
  for (uint32_t i = 1; i < lead.num_bytes; ++i) {
    if (i == text.size()) return {kReplacement, i, false};
    const uint8_t byte = byte_at(text, i);
    const bool fits =
        i == 1 ? byte >= lead.second_min && byte <= lead.second_max : is_continuation(byte);
    if (!fits) return {kReplacement, i, false};
    value = (value << 6) | (byte & 0x3FU);
  }
  return {value, lead.num_bytes, true};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t word = 0;
    while (at + sizeof(word) <= text.size()) {  // Most text is ASCII: eight bytes at a time.
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080U) != 0) break;
      at += sizeof(word);
    }
    if (at == text.size()) break;
    const CodePoint next = decode_utf8(text.substr(at));
    if (!next.valid) return at;
    at += next.num_bytes;
  }
  return at;
}

std::string repair_utf8(std::string_view text, int64_t& num_replaced) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t valid = valid_utf8_prefix(text);
    result += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    append_utf8(result, kReplacement);
    text.remove_prefix(decode_utf8(text).num_bytes);
    ++num_replaced;
  }
  return result;
}

void append_utf8(std::string& text, uint32_t code_point) {
  const auto put = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace atl::text
