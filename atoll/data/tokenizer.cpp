#include "atoll/data/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/data/gpt2_words.h"
#include "atoll/data/tokenizer_tables.h"
#include "atoll/data/word_cache.h"

namespace atl::data {

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerTables> tables) : tables_(std::move(tables)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& file) {
  return from_json(read_file(file), file.string());
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, SpecialText special) const {
  std::vector<TokenId> ids;
  Encoder(*this).encode(text, special, ids);
  return ids;
}

std::vector<TokenId> Tokenizer::with_special_tokens(std::vector<TokenId> ids) const {
  ids.insert(ids.begin(), tables_->prefix.begin(), tables_->prefix.end());
  ids.insert(ids.end(), tables_->suffix.begin(), tables_->suffix.end());
  return ids;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  const auto at = static_cast<size_t>(id);
  if (id < 0 || at >= tables_->bytes.size() || !tables_->is_known[at]) {
    throw InputError(
        fmt::format("token id {} is not in the vocabulary ({} ids)", id, vocab_size()));
  }
  return tables_->bytes[at];
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += token_bytes(id);
  return text;
}

std::string Tokenizer::decode(std::span<const int64_t> ids) const {
  std::string text;
  for (const int64_t id : ids) {
    text += token_bytes(std::in_range<TokenId>(id) ? static_cast<TokenId>(id) : TokenId{-1});
  }
  return text;
}

int64_t Tokenizer::vocab_size() const { return std::ssize(tables_->bytes); }

std::optional<TokenId> Tokenizer::id_of(std::string_view special_token) const {
  for (const AddedToken& token : tables_->added) {
    if (token.content == special_token) return token.id;
  }
  return {};
}

bool Tokenizer::is_special(TokenId id) const {
  for (const AddedToken& token : tables_->added) {
    if (token.id == id) return token.special;
  }
  return false;
}

TokenId Tokenizer::end_of_text() const {
  for (const std::string_view name : {kEndOfText, std::string_view("<|end_of_text|>"),
                                      std::string_view("</s>"), std::string_view("<eos>")}) {
    if (const auto id = id_of(name)) return *id;
  }
  throw InputError(
      "the tokenizer has no end-of-text token: none of <|endoftext|>, "
      "<|end_of_text|>, </s>, <eos> is among its added_tokens");
}

const std::string& Tokenizer::json() const { return tables_->json; }
const std::string& Tokenizer::sha256() const { return tables_->sha256; }

struct Encoder::State {
  const TokenizerTables& tables;
  Gpt2Words words;
  WordCache cache;
  BpeScratch scratch;
  std::vector<TokenId> word_ids;
  int64_t num_replaced = 0;

  /// The ids of one word by merging, appended to `ids` and put in the cache.
  size_t merge_word(std::string_view word, TokenId* ids) {
    for (size_t i = 0; i < word.size(); ++i) {
      ids[i] = tables.byte_ids[static_cast<uint8_t>(word[i])];
    }
    return scratch.merge(tables.merges, ids, word.size());
  }

  size_t encode_long_word(std::string_view word, TokenId* ids) {
    if (word.size() > WordCache::kMaxLongBytes) return merge_word(word, ids);
    const std::span<const TokenId> held = cache.find_long(word);
    if (!held.empty()) {
      std::copy(held.begin(), held.end(), ids);
      return held.size();
    }
    const size_t count = merge_word(word, ids);
    cache.insert_long(word, {ids, count});
    return count;
  }

  /// `ids` has room for one id per byte and kMaxIds more. Returns how many were written.
  size_t encode_words(std::string_view text, TokenId* ids) {
    const char* at = text.data();
    const char* const end = at + text.size();
    TokenId* out = ids;
    while (at < end) {
      const char* const after = words.next(at, end);
      const auto size = static_cast<size_t>(after - at);
      if (size > ShortWord::kMaxBytes) [[unlikely]] {
        out += encode_long_word({at, size}, out);
      } else {
        const ShortWord word = ShortWord::read(at, size, end);
        if (const WordCache::Entry* entry = cache.find(word)) [[likely]] {
          std::memcpy(out, entry->ids.data(), sizeof(entry->ids));  // All slots: no loop.
          out += entry->num_ids;
        } else {
          const size_t count = merge_word({at, size}, out);
          cache.insert(word, {out, count});
          out += count;
        }
      }
      at = after;
    }
    return static_cast<size_t>(out - ids);
  }

  void append_words(std::string_view text, std::vector<TokenId>& ids) {
    constexpr size_t kPiece = size_t{1} << 16;
    while (!text.empty()) {
      const std::string_view piece = text.substr(0, safe_cut(text, kPiece));
      word_ids.resize(piece.size() + WordCache::kMaxIds);
      const size_t count = encode_words(piece, word_ids.data());
      ids.insert(ids.end(), word_ids.data(), word_ids.data() + count);
      text.remove_prefix(piece.size());
    }
  }

  /// A place near `wanted` where a word surely ends, so that pieces can be encoded apart and the
  /// buffer stays in the processor's cache: before a space that stands between two non-spaces of
  /// ASCII. Without one, the whole text is one piece.
  static size_t safe_cut(std::string_view text, size_t wanted) {
    const auto is_ink = [](char c) { return c > ' ' && c < 0x7f; };
    for (size_t at = wanted; at + 1 < text.size(); ++at) {
      if (text[at] == ' ' && is_ink(text[at - 1]) && is_ink(text[at + 1])) return at;
    }
    return text.size();
  }

  template <typename Rest>
  static void split(std::string_view text, const AddedTokenMatcher& matcher, SpecialText special,
                    std::vector<TokenId>& ids, const Rest& rest) {
    size_t at = 0;
    while (at < text.size()) {
      const AddedTokenMatcher::Match match = matcher.find(text, at, special);
      if (match.begin == std::string_view::npos) break;
      rest(text.substr(at, match.begin - at));
      ids.push_back(match.id);
      at = match.begin + match.size;
    }
    rest(text.substr(at));
  }
};

Encoder::Encoder(const Tokenizer& tokenizer)
    : state_(new State{
          .tables = *tokenizer.tables_, .words = {}, .cache = {}, .scratch = {}, .word_ids = {}}) {}
Encoder::~Encoder() = default;

int64_t Encoder::num_replaced() const { return state_->num_replaced; }

void Encoder::encode(std::string_view text, SpecialText special, std::vector<TokenId>& ids) {
  State& state = *state_;
  std::string repaired;
  if (valid_utf8_prefix(text) != text.size()) {
    repaired = repair_utf8(text, state.num_replaced);
    text = repaired;
  }
  State::split(text, state.tables.raw, special, ids, [&](std::string_view part) {
    State::split(part, state.tables.normalized, special, ids,
                 [&](std::string_view plain) { state.append_words(plain, ids); });
  });
}

}  // namespace atl::data
