#include "atoll/tokenizer/byte_alphabet.h"

#include <array>

#include "atoll/text/utf8.h"

namespace atl::tokenizer {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

struct Alphabet {
  std::array<uint16_t, 256> characters{};
  std::array<int16_t, 324> bytes{};  // 256 + 68 characters; -1 where none.

  constexpr Alphabet() {
    bytes.fill(-1);
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      characters[byte] = static_cast<uint16_t>(stands_for_itself(byte) ? byte : next++);
      bytes[characters[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

uint32_t byte_to_char(uint8_t byte) { return kAlphabet.characters[byte]; }

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes)
    text::append_utf8(spelling, byte_to_char(static_cast<uint8_t>(byte)));
  return spelling;
}

std::optional<std::string> read_spelling(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const text::CodePoint next = text::decode_utf8(spelling);
    if (next.value >= kAlphabet.bytes.size() || kAlphabet.bytes[next.value] < 0) return {};
    bytes += static_cast<char>(kAlphabet.bytes[next.value]);
    spelling.remove_prefix(next.num_bytes);
  }
  return bytes;
}

}  // namespace atl::tokenizer
