// Text to ids: bad bytes repaired, added tokens cut out, the rest normalised and cut into words,
// which are merged or, nearly always, found in the cache.
#include <array>
#include <cstring>
#include <type_traits>
#include <variant>

#include "atoll/text/utf8.h"
#include "atoll/tokenizer/cl100k_words.h"
#include "atoll/tokenizer/gpt2_words.h"
#include "atoll/tokenizer/tokenizer.h"
#include "atoll/tokenizer/tokenizer_tables.h"
#include "atoll/tokenizer/word_cache.h"

namespace atl::tokenizer {
namespace {

/// The words are what the pre-tokenizer cuts.
struct StepWords {};

using Words = std::variant<StepWords, Gpt2Words, Cl100kWords, JoinedWords>;

Words words_of(const TokenizerTables& tables) {
  switch (tables.words) {
    case WordRule::kCl100k:
      return Cl100kWords(3);
    case WordRule::kQwen:
      return Cl100kWords(1);
    case WordRule::kJoined:
      return JoinedWords(tables.joins);
    case WordRule::kGpt2:
      return Gpt2Words();
    case WordRule::kSteps:
      break;
  }
  return StepWords();
}

constexpr TokenId kNone = -1;

}  // namespace

struct Encoder::State {
  const TokenizerTables& tables;
  std::array<TokenId, 128> one_byte{};  // The ids of words of one byte.
  Words words;
  WordCache cache;
  BpeScratch scratch;
  std::vector<TokenId> word_ids;
  Pieces pieces;
  std::vector<Piece> spare_pieces;
  Normalizer::Scratch scratches;
  std::string mark_scratch;
  std::string metaspace_scratch;
  int64_t num_replaced = 0;
  int64_t num_without_token = 0;

  explicit State(const TokenizerTables& all) : tables(all), words(words_of(all)) {
    for (size_t byte = 0; byte < one_byte.size(); ++byte) {
      const char word = static_cast<char>(byte);
      one_byte[byte] = kNone;
      merge_word({&word, 1}, &one_byte[byte]);
    }
    num_without_token = 0;
  }

  /// Writes the ids of one word, by merging.
  size_t merge_word(std::string_view word, TokenId* ids) {
    if (tables.model != nullptr) {
      const WordModel::Read read = tables.model->read(word, ids);
      num_without_token += static_cast<int64_t>(read.num_without_token);
      return read.num_ids;
    }
    if (!tables.whole_words.empty()) {
      const auto found = tables.whole_words.find(std::string(word));
      if (found != tables.whole_words.end()) {
        *ids = found->second;
        return 1;
      }
    }
    const BaseSymbols::Read read = tables.symbols.read(word, ids);
    num_without_token += static_cast<int64_t>(read.num_without_token);
    return scratch.merge(tables.merges, ids, read.num_ids);
  }

  size_t encode_long_word(std::string_view word, TokenId* ids) {
    if (word.size() > WordCache::kMaxLongBytes) return merge_word(word, ids);
    const std::span<const TokenId> held = cache.find_long(word);
    if (!held.empty()) {
      std::copy(held.begin(), held.end(), ids);
      return held.size();
    }
    const int64_t before = num_without_token;
    const size_t count = merge_word(word, ids);
    if (num_without_token == before) cache.insert_long(word, {ids, count});
    return count;
  }

  /// Writes the ids of the word from `at` to `after`, and returns their end: one for each byte at
  /// most, but kMaxIds are written to. At `end` ends what may be read.
  TokenId* encode_word(const char* at, const char* after, const char* end, TokenId* out) {
    const auto size = static_cast<size_t>(after - at);
    if (size == 1) {
      *out = one_byte[static_cast<uint8_t>(*at)];
      const bool has_id = *out != kNone;
      num_without_token += !has_id;
      return out + has_id;
    }
    if (size > ShortWord::kMaxBytes) [[unlikely]]
      return out + encode_long_word({at, size}, out);
    const ShortWord word = ShortWord::read(at, size, end);
    if (const WordCache::Entry* entry = cache.find(word)) [[likely]] {
      std::memcpy(out, entry->ids.data(), sizeof(entry->ids));  // All slots: no loop.
      return out + entry->num_ids;
    }
    const int64_t before = num_without_token;
    const size_t count = merge_word({at, size}, out);
    // What leaves something out is counted each time.
    if (num_without_token == before) cache.insert(word, {out, count});
    return out + count;
  }

  /// `ids` has room for one id per byte and kMaxIds more. Returns how many were written.
  template <typename Cutter>
  size_t encode_words(const Cutter& cutter, std::string_view text, TokenId* ids) {
    const char* at = text.data();
    const char* const end = at + text.size();
    TokenId* out = ids;
    while (at < end) {
      const char* const after = cutter.next(at, end);
      out = encode_word(at, after, end, out);
      at = after;
    }
    return static_cast<size_t>(out - ids);
  }

  /// In pieces, so that the buffer stays in the processor's cache.
  template <typename Cutter>
  void append_words(const Cutter& cutter, std::string_view text, std::vector<TokenId>& ids) {
    constexpr size_t kPiece = size_t{1} << 16;
    while (!text.empty()) {
      const std::string_view piece = text.substr(0, cutter.safe_cut(text, kPiece));
      word_ids.resize(piece.size() + WordCache::kMaxIds);
      const size_t count = encode_words(cutter, piece, word_ids.data());
      ids.insert(ids.end(), word_ids.data(), word_ids.data() + count);
      text.remove_prefix(piece.size());
    }
  }

  void append_pieces(std::string_view text, bool is_first, std::vector<TokenId>& ids) {
    tables.pre_tokenizer.cut(text, is_first, pieces, spare_pieces);
    for (const Piece& piece : pieces.all) {
      word_ids.resize(piece.text.size() + WordCache::kMaxIds);
      const char* const end = piece.text.data() + piece.text.size();
      TokenId* const behind = encode_word(piece.text.data(), end, end, word_ids.data());
      ids.insert(ids.end(), word_ids.data(), behind);
    }
  }

  void append_plain(std::string_view text, bool is_first, std::vector<TokenId>& ids) {
    if (std::holds_alternative<StepWords>(words)) return append_pieces(text, is_first, ids);
    if (tables.metaspace.is_used) text = tables.metaspace.apply(text, is_first, metaspace_scratch);
    const auto append = [&]<typename Cutter>(const Cutter& cutter) {
      if constexpr (!std::is_same_v<Cutter, StepWords>) append_words(cutter, text, ids);
    };
    std::visit(append, words);
  }

  void append(std::string_view text, SpecialText special, std::vector<TokenId>& ids) {
    const auto on_token = [&](TokenId id) { ids.push_back(id); };
    const auto on_part = [&](std::string_view part, size_t begin) {
      const std::string_view normal =
          tables.marks.apply(tables.normalizer.apply(part, scratches), mark_scratch);
      tables.normalized.split(
          normal, special,
          [&](std::string_view plain, size_t plain_begin) {
            append_plain(plain, begin == 0 && plain_begin == 0, ids);
          },
          on_token);
    };
    tables.raw.split(text, special, on_part, on_token);
  }
};

Encoder::Encoder(const Tokenizer& tokenizer) : state_(new State(*tokenizer.tables_)) {}
Encoder::~Encoder() = default;

int64_t Encoder::num_replaced() const { return state_->num_replaced; }
int64_t Encoder::num_without_token() const { return state_->num_without_token; }

void Encoder::encode(std::string_view text, SpecialText special, std::vector<TokenId>& ids) {
  std::string repaired;
  if (text::valid_utf8_prefix(text) != text.size()) {
    repaired = text::repair_utf8(text, state_->num_replaced);
    text = repaired;
  }
  state_->append(text, special, ids);
}

}  // namespace atl::tokenizer
