#pragma once
// What a loaded tokenizer.json becomes. Internal to the tokenizer's own files.
//
// SentencePiece-style files spell a space as U+2581, the mark. In here such a text has spaces
// again, and its marks are spaces too: the file's components take them for the same.
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/tokenizer/added_tokens.h"
#include "atoll/tokenizer/base_symbols.h"
#include "atoll/tokenizer/bpe.h"
#include "atoll/tokenizer/joined_words.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {

/// What a text goes through before words are cut.
struct TextNormalizer {
  bool nfc = false;
  bool marks = false;     // Spaces become marks.
  bool prepends = false;  // A mark comes before each text that is not empty; needs `marks`.

  /// `text` itself, or a copy in one of the scratches.
  std::string_view apply(std::string_view text, std::string& nfc_scratch,
                         std::string& mark_scratch) const;
};

/// Metaspace: spaces become marks, and one is put before a text that begins with none.
struct Metaspace {
  enum class Prepend { kNever, kFirst, kAlways };
  bool is_used = false;
  Prepend prepend = Prepend::kAlways;
  bool splits = true;  // Each mark begins a word.

  std::string_view apply(std::string_view text, bool is_first, std::string& scratch) const;
};

enum class WordRule {
  kGpt2,
  kCl100k,  // Numbers of up to three digits,
  kQwen,    // of one.
  kJoined,  // SentencePiece-style.
};

struct TokenizerTables {
  std::string json;
  std::string sha256;

  TextNormalizer normalizer;
  Metaspace metaspace;
  WordRule words = WordRule::kGpt2;
  JoinTable joins;  // Of kJoined.

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
  std::unordered_map<TokenId, std::string> first_bytes;  // Where it differs at a text's begin.
  size_t num_stripped = 0;  // So many spaces at the begin of a decoded text are left out.
};

inline constexpr std::string_view kMark = "\u2581";

}  // namespace atl::tokenizer
