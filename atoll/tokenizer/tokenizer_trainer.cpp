#include "atoll/tokenizer/tokenizer_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/tokenizer/byte_alphabet.h"
#include "atoll/tokenizer/gpt2_words.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::tokenizer {
namespace {

constexpr size_t kMaxWordBytes = 4096;

uint64_t pair_key(TokenId left, TokenId right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

struct Word {
  std::vector<TokenId> tokens;
  int64_t count;
};

/// A pair of neighbours: how often it occurs, and the words that had it when it appeared.
struct Pair {
  int64_t count = 0;
  std::vector<uint32_t> words;
};

/// One entry per pair and noted count; an entry whose count is out of date goes back corrected.
struct Candidate {
  int64_t count;
  uint64_t key;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : key > other.key;
  }
};

class Trainer {
 public:
  explicit Trainer(std::vector<std::pair<std::string_view, int64_t>> counted) {
    make_alphabet();
    std::sort(counted.begin(), counted.end());  // The order of a hash table must not show.
    for (const auto& [text, count] : counted) {
      Word word{.tokens = {}, .count = count};
      for (const char byte : text) word.tokens.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
      words_.push_back(std::move(word));
    }
    for (uint32_t index = 0; index < words_.size(); ++index) {
      const Word& word = words_[index];
      for (size_t i = 0; i + 1 < word.tokens.size(); ++i) {
        note(pair_key(word.tokens[i], word.tokens[i + 1]), word.count, index);
      }
    }
    for (const auto& [key, pair] : pairs_) queue_.push({pair.count, key});
  }

  void run(const TrainerOptions& options, const std::function<void(int64_t)>& progress) {
    while (std::ssize(tokens_) < options.vocab_size && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.key);
      if (found == pairs_.end() || found->second.count <= 0) continue;
      if (found->second.count != best.count) {
        queue_.push({found->second.count, best.key});
        continue;
      }
      if (best.count < options.min_frequency) break;
      join(best.key, std::move(found->second.words));
      pairs_.erase(best.key);
      progress(std::ssize(tokens_));
    }
  }

  std::string to_json() const {
    using Json = nlohmann::ordered_json;
    const Json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", true}};
    Json vocabulary = Json::object();
    auto& vocabulary_fields = vocabulary.get_ref<Json::object_t&>();
    vocabulary_fields.reserve(tokens_.size());
    // emplace_back, not operator[]: an ordered object looks for the key through all others.
    vocabulary_fields.emplace_back(std::string(kEndOfText), 0);
    for (size_t id = 1; id < tokens_.size(); ++id) {
      vocabulary_fields.emplace_back(spell_bytes(tokens_[id]), id);
    }
    Json merges = Json::array();
    for (const auto& [left, right] : merges_) {
      merges.push_back({spell_bytes(tokens_[static_cast<size_t>(left)]),
                        spell_bytes(tokens_[static_cast<size_t>(right)])});
    }
    const Json end_of_text = {{"id", 0},         {"content", kEndOfText}, {"single_word", false},
                              {"lstrip", false}, {"rstrip", false},       {"normalized", false},
                              {"special", true}};
    const Json json = {{"version", "1.0"},
                       {"truncation", nullptr},
                       {"padding", nullptr},
                       {"added_tokens", Json::array({end_of_text})},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", byte_level},
                       {"post_processor", nullptr},
                       {"decoder", byte_level},
                       {"model",
                        {{"type", "BPE"},
                         {"dropout", nullptr},
                         {"unk_token", nullptr},
                         {"continuing_subword_prefix", nullptr},
                         {"end_of_word_suffix", nullptr},
                         {"fuse_unk", false},
                         {"byte_fallback", false},
                         {"ignore_merges", false},
                         {"vocab", std::move(vocabulary)},
                         {"merges", std::move(merges)}}}};
    return json.dump(2) + "\n";
  }

 private:
  /// Id 0 is <|endoftext|>; the bytes follow in the order of the characters that spell them.
  void make_alphabet() {
    tokens_.emplace_back();
    std::vector<uint8_t> bytes(256);
    for (unsigned byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<uint8_t>(byte);
    std::sort(bytes.begin(), bytes.end(),
              [](uint8_t a, uint8_t b) { return byte_to_char(a) < byte_to_char(b); });
    for (const uint8_t byte : bytes) {
      byte_ids_[byte] = static_cast<TokenId>(tokens_.size());
      tokens_.emplace_back(1, static_cast<char>(byte));
    }
    for (size_t id = 1; id < tokens_.size(); ++id) {
      ids_.emplace(tokens_[id], static_cast<TokenId>(id));
    }
  }

  void note(uint64_t key, int64_t change, uint32_t word) {
    Pair& pair = pairs_[key];
    pair.count += change;
    if (change > 0 && (pair.words.empty() || pair.words.back() != word)) pair.words.push_back(word);
  }

  void join(uint64_t key, std::vector<uint32_t> places) {
    const auto left = static_cast<TokenId>(key >> 32);
    const auto right = static_cast<TokenId>(key & 0xffffffffU);
    std::string bytes = tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)];
    // Two merges may spell the same token ("a"+"bc", "ab"+"c"): it keeps its first id.
    const auto [entry, is_new] = ids_.emplace(bytes, static_cast<TokenId>(tokens_.size()));
    const TokenId merged = entry->second;
    if (is_new) tokens_.push_back(std::move(bytes));
    merges_.emplace_back(left, right);

    touched_.clear();
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (const uint32_t place : places) join_in(words_[place], place, left, right, merged);
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const uint64_t changed : touched_) {
      if (changed != key) queue_.push({pairs_[changed].count, changed});
    }
  }

  /// Joins the pair in one word from left to right; counts follow the neighbours as they change.
  void join_in(Word& word, uint32_t place, TokenId left, TokenId right, TokenId merged) {
    std::vector<TokenId>& tokens = word.tokens;
    const auto change = [&](TokenId a, TokenId b, int64_t by) {
      const uint64_t key = pair_key(a, b);
      note(key, by, place);
      if (by > 0) touched_.push_back(key);
    };
    size_t out = 0;
    for (size_t in = 0; in < tokens.size(); ++in, ++out) {
      if (in + 1 == tokens.size() || tokens[in] != left || tokens[in + 1] != right) {
        tokens[out] = tokens[in];
        continue;
      }
      if (out > 0) {
        change(tokens[out - 1], left, -word.count);
        change(tokens[out - 1], merged, word.count);
      }
      if (in + 2 < tokens.size()) {
        change(right, tokens[in + 2], -word.count);
        change(merged, tokens[in + 2], word.count);
      }
      tokens[out] = merged;
      ++in;
    }
    tokens.resize(out);
  }

  std::vector<Word> words_;
  std::vector<std::string> tokens_;  // Bytes by id.
  std::unordered_map<std::string, TokenId> ids_;
  std::array<TokenId, 256> byte_ids_{};
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::pair<TokenId, TokenId>> merges_;
  std::vector<uint64_t> touched_;  // Pairs that gained in this join.
};

}  // namespace

size_t WordCounts::Hash::operator()(std::string_view word) const {
  return xxh3(word.data(), word.size());
}

void WordCounts::add(std::string_view document) {
  const Gpt2Words splitter;
  std::string repaired;
  if (text::valid_utf8_prefix(document) != document.size()) {
    repaired = text::repair_utf8(document, num_replaced_);
    document = repaired;
  }
  const char* const end = document.data() + document.size();
  for (const char* at = document.data(); at < end;) {
    const char* const after = splitter.next(at, end);
    const std::string_view word(at, static_cast<size_t>(after - at));
    at = after;
    if (word.size() > kMaxWordBytes) continue;
    const auto found = counts_.find(word);
    if (found != counts_.end()) {
      ++found->second;
    } else {
      counts_.emplace(word, 1);
    }
  }
}

std::string train_tokenizer(const WordCounts& words, const TrainerOptions& options,
                            const std::function<void(int64_t num_ids)>& progress) {
  if (options.vocab_size < kMinVocabulary || options.vocab_size > kMaxVocabulary) {
    throw UsageError(fmt::format("the vocabulary must have {} to {} ids, not {}", kMinVocabulary,
                                 kMaxVocabulary, options.vocab_size));
  }
  if (options.min_frequency < 1) {
    throw UsageError(
        fmt::format("the minimum frequency must be at least 1, not {}", options.min_frequency));
  }
  if (words.empty()) throw InputError("the corpus is empty: there are no words to learn from");
  std::vector<std::pair<std::string_view, int64_t>> counted;
  counted.reserve(words.counts_.size());
  for (const auto& [word, count] : words.counts_) counted.emplace_back(word, count);
  Trainer trainer(std::move(counted));
  trainer.run(options, progress);
  return trainer.to_json();
}

}  // namespace atl::tokenizer
