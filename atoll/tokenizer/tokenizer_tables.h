#pragma once
// What a loaded tokenizer.json becomes. Internal to the tokenizer's own files.
//
// SentencePiece-style files spell a space as U+2581, the mark. In here such a text has spaces
// again, and its marks are spaces too: the file's components take them for the same.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/tokenizer/added_tokens.h"
#include "atoll/tokenizer/base_symbols.h"
#include "atoll/tokenizer/bpe.h"
#include "atoll/tokenizer/joined_words.h"
#include "atoll/tokenizer/normalizer.h"
#include "atoll/tokenizer/pre_tokenizer.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/word_models.h"

namespace atl::tokenizer {

/// The last steps of a normalizer, where words are kJoined.
struct Marks {
  bool are_used = false;  // Spaces become marks.
  bool prepends = false;  // A mark comes before each text that is not empty; needs `are_used`.

  /// `text` itself, or a copy in `scratch`.
  std::string_view apply(std::string_view text, std::string& scratch) const;
};

/// Metaspace: spaces become marks, and one is put before a text that begins with none.
struct Metaspace {
  bool is_used = false;
  PrefixScheme prefix = PrefixScheme::kAlways;
  bool splits = true;  // Each mark begins a word.

  std::string_view apply(std::string_view text, bool is_first, std::string& scratch) const;
};

enum class WordRule : uint8_t {
  kSteps,  // What the pre-tokenizer cuts, step by step. The others are by hand:
  kGpt2,
  kCl100k,  // Numbers of up to three digits,
  kQwen,    // of one.
  kJoined,  // SentencePiece-style.
};

/// How the file's decoder turns tokens into text.
struct DecoderRule {
  bool byte_fallback = false;            // "<0x0A>" is that byte.
  bool strips_first_mark = false;        // Metaspace: the first token's marks vanish.
  bool parts_words = false;              // A space comes before each token but the first,
  std::optional<std::string> continues;  // and but those that begin so, which it loses,
  bool cleans_up = false;                // and but what English writes behind a word.
  std::string ends_word;                 // A space, and at a text's end nothing; empty: none.
};

struct TokenizerTables {
  std::string json;
  std::string sha256;

  Normalizer normalizer;
  WordRule words = WordRule::kSteps;
  PreTokenizer pre_tokenizer;  // Of kSteps.
  Marks marks;                 // Of kJoined, as are the next two.
  Metaspace metaspace;
  JoinTable joins;
  bool is_byte_level = false;  // The vocabulary spells bytes.

  std::unique_ptr<const WordModel> model;  // Null: BPE, whose parts are the next three.
  BaseSymbols symbols;
  MergeTable merges;
  std::unordered_map<std::string, TokenId> whole_words;  // ignore_merges: taken as they are.

  std::vector<AddedToken> added;
  AddedTokenMatcher raw;         // Cut out of the text as it comes,
  AddedTokenMatcher normalized;  // then these out of what is left.
  std::vector<TokenId> prefix;   // with_special_tokens() puts these around.
  std::vector<TokenId> suffix;

  std::vector<std::string> bytes;  // By id; an id that the file leaves out has none and
  std::vector<bool> is_known;      // is not known.
  std::unordered_map<TokenId, std::string> first_bytes;  // Where it differs at a text's begin,
  std::unordered_map<TokenId, std::string> last_bytes;   // at its end.

  bool knows(TokenId id) const {
    const auto at = static_cast<size_t>(id);
    return at < is_known.size() && is_known[at];
  }
  /// The token that the file spells so has this id.
  void spell(TokenId id, const std::string& spelling, const DecoderRule& decoder);
  size_t num_stripped = 0;  // So many spaces at the begin of a decoded text are left out.
};

inline constexpr std::string_view kMark = "\u2581";

}  // namespace atl::tokenizer
