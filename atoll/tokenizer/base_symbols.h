#pragma once
// What a word is before its tokens are merged: its bytes, or (SentencePiece-style) its characters.
// What the vocabulary lacks is, in this order: its bytes, if each of them has a token; the token
// for unknown ones; nothing. All as in `tokenizers`. Immutable once filled.
#include <array>
#include <string_view>
#include <unordered_map>

#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

class BaseSymbols {
 public:
  BaseSymbols() {
    bytes_.fill(kNone);
    ascii_.fill(kNone);
  }
  /// Byte-level: a word is its bytes; adds one that has a token.
  void set_byte(uint8_t byte, TokenId id) { bytes_[byte] = id; }
  /// A word is its characters; adds one that has a token.
  void set_character(uint32_t code_point, TokenId id);
  /// A symbol without a token is this one; a run of them too when `fused`.
  void set_unknown(TokenId id, bool fused);
  bool has_character(uint32_t code_point) const { return character(code_point) != kNone; }
  bool is_bytes() const { return is_bytes_; }
  /// All that valid UTF-8 consists of have tokens.
  bool has_all_bytes() const;

  struct Read {
    size_t num_ids = 0;
    size_t num_without_token = 0;  // Symbols that are nothing.
  };
  /// Writes the ids of `word`, at most one for each byte.
  Read read(std::string_view word, TokenId* ids) const;

 private:
  static constexpr TokenId kNone = -1;
  class Writer;
  TokenId character(uint32_t code_point) const;
  bool has_bytes(std::string_view character) const;

  bool is_bytes_ = true;
  std::array<TokenId, 256> bytes_{};
  std::array<TokenId, 128> ascii_;  // Characters, most of them here.
  std::unordered_map<uint32_t, TokenId> others_;
  TokenId unknown_ = kNone;
  bool unknown_fused_ = false;
};

}  // namespace atl::tokenizer
