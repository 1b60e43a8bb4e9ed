#pragma once
// What a word is before its tokens are merged: its bytes, or (SentencePiece-style) its characters,
// those that the vocabulary lacks as bytes or as the token for unknown ones. Immutable once filled.
#include <array>
#include <string_view>
#include <unordered_map>

#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

class BaseSymbols {
 public:
  BaseSymbols() { ascii_.fill(kNone); }
  /// Byte-level: a word is its bytes.
  void set_byte(uint8_t byte, TokenId id) { bytes_[byte] = id; }
  /// A word is its characters; adds one that has a token.
  void set_character(uint32_t code_point, TokenId id);
  /// A character without a token is this one; a run of them too when `fused`.
  void set_unknown(TokenId id, bool fused);
  bool has_character(uint32_t code_point) const { return character(code_point) != kNone; }
  bool is_bytes() const { return is_bytes_; }

  /// Writes the ids of `word`, at most one for each byte; returns how many.
  size_t read(std::string_view word, TokenId* ids) const;

 private:
  static constexpr TokenId kNone = -1;
  TokenId character(uint32_t code_point) const;
  size_t read_characters(std::string_view word, TokenId* ids) const;

  bool is_bytes_ = true;
  std::array<TokenId, 256> bytes_{};
  std::array<TokenId, 128> ascii_;  // Characters, most of them here.
  std::unordered_map<uint32_t, TokenId> others_;
  TokenId unknown_ = kNone;
  bool unknown_fused_ = false;
};

}  // namespace atl::tokenizer
