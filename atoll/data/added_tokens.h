#pragma once
// Tokens that stand in the text as they are written ("<|endoftext|>"): they are cut out before
// words are made, the leftmost first, the longest where several start. Immutable, so shared by
// threads.
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/data/tokenizer.h"

namespace atl::data {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;
};

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

  struct Match {
    size_t begin = std::string_view::npos;  // npos: none.
    size_t size = 0;
    TokenId id = 0;
  };
  /// The first match at or behind `from`.
  Match find(std::string_view text, size_t from, SpecialText special) const;
  bool empty() const { return tokens_.empty(); }

 private:
  std::vector<AddedToken> tokens_;  // Longest first.
  std::array<bool, 256> starts_{};  // First bytes of tokens.
  std::string only_start_;          // The first byte, when all share one.
};

}  // namespace atl::data
