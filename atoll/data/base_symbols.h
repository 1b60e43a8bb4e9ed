#pragma once
// What a word is before its tokens are merged: its bytes, or (SentencePiece-style) its characters,
// those that the vocabulary lacks as bytes or as the token for unknown ones. Immutable once filled.
#include <array>
#include <string_view>
#include <unordered_map>

#include "atoll/data/tokenizer.h"

namespace atl::data {

class BaseSymbols {
 public:
  /// Byte-level: a word is its bytes.
  void set_byte(uint8_t byte, TokenId id) { bytes_[byte] = id; }
  /// A word is its characters; adds one that has a token.
  void set_character(uint32_t code_point, TokenId id);
  /// A character without a token is this one; a run of them too when `fused`.
  void set_unknown(TokenId id, bool fused);
  bool has_character(uint32_t code_point) const { return characters_.contains(code_point); }
  bool is_bytes() const { return characters_.empty(); }

  /// Writes the ids of `word`, at most one for each byte; returns how many.
  size_t read(std::string_view word, TokenId* ids) const;

 private:
  static constexpr TokenId kNone = -1;
  size_t read_characters(std::string_view word, TokenId* ids) const;

  std::array<TokenId, 256> bytes_{};
  std::unordered_map<uint32_t, TokenId> characters_;
  TokenId unknown_ = kNone;
  bool unknown_fused_ = false;
};

}  // namespace atl::data
