#pragma once
// GPT-2's byte alphabet: tokenizer.json spells the 256 bytes as 256 printable characters. Bytes
// 33-126, 161-172 and 174-255 stand for themselves, the other 68 in order for U+0100 and on. Pure
// functions.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace atl::tokenizer {

/// The character that spells a byte.
uint32_t byte_to_char(uint8_t byte);
/// The token's spelling in tokenizer.json.
std::string spell_bytes(std::string_view bytes);
/// The bytes behind a spelling, or nothing when a character is not of the alphabet.
std::optional<std::string> read_spelling(std::string_view spelling);

}  // namespace atl::tokenizer
