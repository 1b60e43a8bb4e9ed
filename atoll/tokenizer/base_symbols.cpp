#include "atoll/tokenizer/base_symbols.h"

#include "atoll/text/utf8.h"

namespace atl::tokenizer {

void BaseSymbols::set_character(uint32_t code_point, TokenId id) {
  is_bytes_ = false;
  if (code_point < ascii_.size()) {
    ascii_[code_point] = id;
  } else {
    others_[code_point] = id;
  }
}

TokenId BaseSymbols::character(uint32_t code_point) const {
  if (code_point < ascii_.size()) return ascii_[code_point];
  const auto found = others_.find(code_point);
  return found == others_.end() ? kNone : found->second;
}

void BaseSymbols::set_unknown(TokenId id, bool fused) {
  unknown_ = id;
  unknown_fused_ = fused;
}

size_t BaseSymbols::read(std::string_view word, TokenId* ids) const {
  if (!is_bytes()) return read_characters(word, ids);
  for (size_t i = 0; i < word.size(); ++i) ids[i] = bytes_[static_cast<uint8_t>(word[i])];
  return word.size();
}

size_t BaseSymbols::read_characters(std::string_view word, TokenId* ids) const {
  size_t count = 0;
  bool after_unknown = false;
  while (!word.empty()) {
    const auto byte = static_cast<uint8_t>(word.front());
    const text::CodePoint next =
        byte < ascii_.size() ? text::CodePoint{byte, 1, true} : text::decode_utf8(word);
    const TokenId id = character(next.value);
    const bool is_unknown = id == kNone;
    if (!is_unknown) {
      ids[count++] = id;
    } else if (unknown_ == kNone) {
      for (const char part : word.substr(0, next.num_bytes)) {
        ids[count++] = bytes_[static_cast<uint8_t>(part)];
      }
    } else if (!(after_unknown && unknown_fused_)) {
      ids[count++] = unknown_;
    }
    after_unknown = is_unknown;
    word.remove_prefix(next.num_bytes);
  }
  return count;
}

}  // namespace atl::tokenizer
