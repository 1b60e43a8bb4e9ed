#pragma once
// Cuts a text that no pre-tokeniser cuts (SentencePiece-style models: the whole text is one word)
// where no merge can ever reach across: "e" and the space behind it, when no merge of the
// vocabulary joins a token that ends in "e" to one that begins with a space. What is cut so merges
// to the same ids, in small words that repeat.
//
// Spaces stand for U+2581, the mark that such vocabularies spell them with.
#include <array>
#include <bitset>
#include <string_view>

namespace atl::tokenizer {

/// Which bytes may have to stay together when they are neighbours. All, until cut() says no.
class JoinTable {
 public:
  JoinTable() {
    for (auto& row : rows_) row.set();
  }
  void cut(uint8_t left, uint8_t right) { rows_[left].reset(right); }
  void join(uint8_t left, uint8_t right) { rows_[left].set(right); }
  bool joined(char left, char right) const {
    return rows_[static_cast<uint8_t>(left)][static_cast<uint8_t>(right)];
  }

 private:
  std::array<std::bitset<256>, 256> rows_;
};

class JoinedWords {
 public:
  explicit JoinedWords(const JoinTable& table) : table_(&table) {}

  /// The end of the word that starts at `begin`; the text must not be empty.
  const char* next(const char* begin, const char* end) const {
    const char* at = begin + 1;
    while (at < end && table_->joined(at[-1], at[0])) ++at;
    return at;
  }

  /// A place at or behind `wanted` where a word ends; without one, the end of the text.
  size_t safe_cut(std::string_view text, size_t wanted) const {
    if (wanted >= text.size()) return text.size();
    const char* const end = text.data() + text.size();
    return static_cast<size_t>(next(text.data() + wanted - 1, end) - text.data());
  }

 private:
  const JoinTable* table_;
};

}  // namespace atl::tokenizer
