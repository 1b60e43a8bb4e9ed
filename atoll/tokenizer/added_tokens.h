#pragma once
// Tokens that stand in the text as they are written ("<|endoftext|>"): they are cut out before
// words are made, the leftmost first, the longest where several start. Immutable, so shared by
// threads.
#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;
  bool single_word = false;  // Only where no word character touches it.
  bool lstrip = false;       // Takes the white space before it.
  bool rstrip = false;       // Takes the white space behind it.
};

/// In a text whose spaces stand for U+2581, a space is no white space.
enum class SpaceMeaning { kSpace, kMark };

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  AddedTokenMatcher(std::vector<AddedToken> tokens, SpaceMeaning space);

  /// Calls on_text(part, begin) and on_token(id) for what `text` consists of, from left to right.
  template <typename OnText, typename OnToken>
  void split(std::string_view text, SpecialText special, const OnText& on_text,
             const OnToken& on_token) const {
    size_t done = 0;
    Found found;
    for (size_t from = 0; find(text, from, found); from = found.match_end) {
      if (!accept(text, special, done, found)) continue;
      if (done < found.begin) on_text(text.substr(done, found.begin - done), done);
      on_token(found.token->id);
      done = found.end;
    }
    if (done < text.size()) on_text(text.substr(done), done);
  }

 private:
  struct Found {
    const AddedToken* token = nullptr;
    size_t match_end = 0;  // The next match begins here or later.
    size_t begin = 0;      // With the white space that it takes.
    size_t end = 0;
  };
  /// The first bytes of a token as a number, for comparing without a call.
  struct Head {
    uint64_t value;
    uint64_t mask;
  };

  bool find(std::string_view text, size_t from, Found& found) const;
  const AddedToken* match_at(std::string_view text, size_t at) const;
  bool accept(std::string_view text, SpecialText special, size_t done, Found& found) const;
  bool is_space(uint32_t code_point) const;

  std::vector<AddedToken> tokens_;  // Longest first.
  std::vector<Head> heads_;
  std::array<bool, 256> starts_{};  // First bytes of tokens.
  std::bitset<65536> pairs_;        // First two bytes.
  std::string only_start_;          // The first byte, when all share one.
  SpaceMeaning space_ = SpaceMeaning::kSpace;
};

}  // namespace atl::tokenizer
