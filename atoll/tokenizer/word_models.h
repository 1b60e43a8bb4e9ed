#pragma once
// Models that make tokens of a word, but for BPE as most have it: Unigram (Kudo 2018), WordPiece
// (Schuster and Nakajima 2012), WordLevel, BPE with affixes (GPT-1, CLIP). All as in `tokenizers`.
// Immutable, shared by threads.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/tokenizer/bpe.h"
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

/// BPE whose tokens spell a word's first characters with nothing before them, all others with
/// `prefix`; its last ends with `suffix`.
struct AffixedBpe {
  Vocabulary vocabulary;
  std::string prefix;
  std::string suffix;
  bool spells_bytes = false;  // Characters are those that spell a word's bytes.
  std::optional<TokenId> unknown;
  bool fuses_unknown = false;
  MergeTable merges;
};
std::unique_ptr<WordModel> make_affixed_bpe(AffixedBpe parts);

/// The tokens of `vocabulary` whose scores, by id, have the largest sum: logarithms of
/// probabilities. `byte_fallback`: what has no token is its bytes, if each of them has one
/// ("<0x0A>").
std::unique_ptr<WordModel> make_unigram(const Vocabulary& vocabulary, std::vector<double> scores,
                                        std::optional<TokenId> unknown, bool byte_fallback);

/// Again and again the longest token that the rest begins with; behind the first, tokens begin with
/// `prefix`. A word without such tokens, or of more characters than `most`, is unknown.
std::unique_ptr<WordModel> make_word_piece(const Vocabulary& vocabulary, std::string_view prefix,
                                           size_t most, TokenId unknown);

/// A word is a token, or unknown.
std::unique_ptr<WordModel> make_word_level(Vocabulary vocabulary, TokenId unknown);

}  // namespace atl::tokenizer
