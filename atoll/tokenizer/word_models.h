#pragma once
// Models other than BPE that make tokens of a word: Unigram (Kudo 2018), WordPiece (Schuster and
// Nakajima 2012), WordLevel. All as in `tokenizers`. Immutable, shared by threads.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

using Vocabulary = std::unordered_map<std::string, TokenId>;

class WordModel {
 public:
  virtual ~WordModel() = default;
  struct Read {
    size_t num_ids = 0;
    size_t num_without_token = 0;  // Of what is left out.
  };
  /// Writes the ids of `word`, at most one for each byte.
  virtual Read read(std::string_view word, TokenId* ids) const = 0;
};

struct ScoredToken {
  std::string text;
  double score = 0;  // Logarithm of its probability.
};

/// The tokens whose scores have the largest sum. The id of a token is its place in `tokens`.
/// `byte_fallback`: what has no token is its bytes, if each of them has one ("<0x0A>").
std::unique_ptr<WordModel> make_unigram(const std::vector<ScoredToken>& tokens,
                                        std::optional<TokenId> unknown, bool byte_fallback);

/// Again and again the longest token that the rest begins with; behind the first, tokens begin with
/// `prefix`. A word without such tokens, or of more characters than `most`, is unknown.
std::unique_ptr<WordModel> make_word_piece(const Vocabulary& vocabulary, std::string_view prefix,
                                           size_t most, TokenId unknown);

/// A word is a token, or unknown.
std::unique_ptr<WordModel> make_word_level(Vocabulary vocabulary, TokenId unknown);

}  // namespace atl::tokenizer
