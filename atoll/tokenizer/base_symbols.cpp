#include "atoll/tokenizer/base_symbols.h"

#include <algorithm>
#include <utility>

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

bool BaseSymbols::has_all_bytes() const {
  for (unsigned byte = 0; byte < 0xF5; ++byte) {
    const bool never_comes = byte == 0xC0 || byte == 0xC1;
    if (!never_comes && bytes_[byte] == kNone) return false;
  }
  return true;
}

bool BaseSymbols::has_bytes(std::string_view character) const {
  return std::ranges::all_of(
      character, [this](char byte) { return bytes_[static_cast<uint8_t>(byte)] != kNone; });
}

/// The token for unknown symbols is written when the next symbol that is known is, or at the end.
/// Bytes that stand for a character come before it then: so does `tokenizers`.
class BaseSymbols::Writer {
 public:
  Writer(const BaseSymbols& symbols, TokenId* ids) : symbols_(symbols), ids_(ids) {}

  void known(TokenId id) {
    end();
    put(id);
  }
  void put(TokenId id) { ids_[out_.num_ids++] = id; }
  void unknown() {
    if (symbols_.unknown_ == kNone) {
      ++out_.num_without_token;
      return;
    }
    if (!symbols_.unknown_fused_) end();
    has_unknown_ = true;
  }
  Read end() {
    if (std::exchange(has_unknown_, false)) put(symbols_.unknown_);
    return out_;
  }

 private:
  const BaseSymbols& symbols_;
  TokenId* ids_;
  bool has_unknown_ = false;
  Read out_;
};

BaseSymbols::Read BaseSymbols::read(std::string_view word, TokenId* ids) const {
  Writer writer(*this, ids);
  const auto add = [&](TokenId id) { id == kNone ? writer.unknown() : writer.known(id); };
  if (is_bytes()) {
    for (const char byte : word) add(bytes_[static_cast<uint8_t>(byte)]);
    return writer.end();
  }
  while (!word.empty()) {
    const auto byte = static_cast<uint8_t>(word.front());
    const text::CodePoint next =
        byte < ascii_.size() ? text::CodePoint{byte, 1, true} : text::decode_utf8(word);
    const std::string_view spelling = word.substr(0, next.num_bytes);
    const TokenId id = character(next.value);
    if (id == kNone && has_bytes(spelling)) {
      for (const char part : spelling) writer.put(bytes_[static_cast<uint8_t>(part)]);
    } else {
      add(id);
    }
    word.remove_prefix(next.num_bytes);
  }
  return writer.end();
}

}  // namespace atl::tokenizer
