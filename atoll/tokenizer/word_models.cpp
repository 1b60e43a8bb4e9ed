#include "atoll/tokenizer/word_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "atoll/text/python_text.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/byte_alphabet.h"

namespace atl::tokenizer {
namespace {

constexpr TokenId kNone = -1;

/// The tokens that a text begins with: a byte after the other.
class Trie {
 public:
  void add(std::string_view text, TokenId id) {
    uint32_t at = 0;
    for (const char byte : text) at = child(at, static_cast<uint8_t>(byte));
    nodes_[at] = id;
  }

  /// Calls on_token(id, size) for each, the shortest first.
  template <typename OnToken>
  void each_prefix(std::string_view text, const OnToken& on_token) const {
    uint32_t at = 0;
    for (size_t size = 0; size < text.size(); ++size) {
      const auto found = children_.find(key(at, static_cast<uint8_t>(text[size])));
      if (found == children_.end()) return;
      at = found->second;
      if (nodes_[at] != kNone) on_token(nodes_[at], size + 1);
    }
  }

  TokenId find(std::string_view text) const {
    TokenId id = kNone;
    each_prefix(text, [&](TokenId token, size_t size) { id = size == text.size() ? token : id; });
    return id;
  }

 private:
  static uint64_t key(uint32_t node, uint8_t byte) { return uint64_t{node} << 8 | byte; }
  uint32_t child(uint32_t at, uint8_t byte) {
    const auto next = static_cast<uint32_t>(nodes_.size());
    const auto [place, is_new] = children_.emplace(key(at, byte), next);
    if (is_new) nodes_.push_back(kNone);
    return place->second;
  }

  std::vector<TokenId> nodes_ = {kNone};  // The token that ends there.
  std::unordered_map<uint64_t, uint32_t> children_;
};

class Unigram final : public WordModel {
 public:
  Unigram(const Vocabulary& vocabulary, std::vector<double> scores, std::optional<TokenId> unknown,
          bool byte_fallback)
      : scores_(std::move(scores)), unknown_(unknown.value_or(kNone)) {
    for (const auto& [token, id] : vocabulary) trie_.add(token, id);
    constexpr double kUnknownPenalty = 10;
    unknown_score_ = std::ranges::min(scores_) - kUnknownPenalty;
    bytes_.fill(kNone);
    if (!byte_fallback) return;
    for (unsigned byte = 0; byte < bytes_.size(); ++byte) {
      bytes_[byte] = trie_.find(fmt::format("<0x{:02X}>", byte));
    }
  }

  Read read(std::string_view word, TokenId* ids) const override {
    Read out;
    const std::vector<Part> parts = best_parts(word);
    for (size_t i = 0; i < parts.size(); ++i) {
      Part part = parts[i];
      // Neighbours that are unknown are one.
      while (part.id == unknown_ && i + 1 < parts.size() && parts[i + 1].id == unknown_) {
        part.end = parts[++i].end;
      }
      write(word.substr(part.begin, part.end - part.begin), part.id, ids, out);
    }
    return out;
  }

 private:
  /// Ends where the best way there begins `begin`.
  struct Node {
    double score = -std::numeric_limits<double>::infinity();
    size_t begin = 0;
    TokenId id = kNone;
    bool is_reached = false;

    void offer(double offered, size_t from, TokenId token) {
      if (is_reached && offered <= score) return;
      *this = {.score = offered, .begin = from, .id = token, .is_reached = true};
    }
  };
  struct Part {
    size_t begin, end;
    TokenId id;
  };

  std::vector<Part> best_parts(std::string_view word) const {
    std::vector<Node> nodes(word.size() + 1);
    nodes[0].score = 0;
    for (size_t at = 0; at < word.size();) {
      const size_t size = text::decode_utf8(word.substr(at)).num_bytes;
      bool has_character = false;
      trie_.each_prefix(word.substr(at), [&](TokenId id, size_t length) {
        nodes[at + length].offer(scores_[static_cast<size_t>(id)] + nodes[at].score, at, id);
        has_character |= length == size;
      });
      if (!has_character) nodes[at + size].offer(unknown_score_ + nodes[at].score, at, unknown_);
      at += size;
    }
    std::vector<Part> parts;
    for (size_t end = word.size(); end > 0; end = nodes[end].begin) {
      parts.push_back({nodes[end].begin, end, nodes[end].id});
    }
    std::ranges::reverse(parts);
    return parts;
  }

  /// A part that is unknown may be a token as a whole.
  void write(std::string_view part, TokenId id, TokenId* ids, Read& out) const {
    if (id == unknown_) id = trie_.find(part);
    if (id != kNone) {
      ids[out.num_ids++] = id;
      return;
    }
    const bool has_bytes = std::ranges::all_of(
        part, [&](char byte) { return bytes_[static_cast<uint8_t>(byte)] != kNone; });
    if (has_bytes) {
      for (const char byte : part) ids[out.num_ids++] = bytes_[static_cast<uint8_t>(byte)];
    } else if (unknown_ != kNone) {
      ids[out.num_ids++] = unknown_;
    } else {
      out.num_without_token += text::count_characters(part);
    }
  }

  Trie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  TokenId unknown_;
  std::array<TokenId, 256> bytes_{};
};

class WordPiece final : public WordModel {
 public:
  WordPiece(const Vocabulary& vocabulary, std::string_view prefix, size_t most, TokenId unknown)
      : most_(most), unknown_(unknown) {
    for (const auto& [token, id] : vocabulary) {
      first_.add(token, id);
      if (token.starts_with(prefix)) others_.add(token.substr(prefix.size()), id);
    }
  }

  Read read(std::string_view word, TokenId* ids) const override {
    Read out;
    bool is_known = text::count_characters(word) <= most_;
    for (size_t begin = 0; is_known && begin < word.size();) {
      size_t longest = 0;
      (begin == 0 ? first_ : others_).each_prefix(word.substr(begin), [&](TokenId id, size_t size) {
        longest = size;
        ids[out.num_ids] = id;
      });
      is_known = longest > 0;
      out.num_ids += is_known;
      begin += longest;
    }
    if (is_known) return out;
    *ids = unknown_;
    return {.num_ids = 1};
  }

 private:
  Trie first_;   // What words begin with,
  Trie others_;  // and what they go on with.
  size_t most_;  // Characters.
  TokenId unknown_;
};

class AffixedBpeModel final : public WordModel {
 public:
  explicit AffixedBpeModel(AffixedBpe parts) : parts_(std::move(parts)) {}

  Read read(std::string_view word, TokenId* ids) const override {
    const std::string spelled = parts_.spells_bytes ? spell_bytes(word) : std::string(word);
    Read out;
    bool has_unknown = false;  // It is written when the next one is known, or at the end.
    const auto write_unknown = [&] {
      if (std::exchange(has_unknown, false)) ids[out.num_ids++] = *parts_.unknown;
    };
    for (size_t at = 0; at < spelled.size();) {
      const size_t size = text::decode_utf8(std::string_view(spelled).substr(at)).num_bytes;
      const bool is_last = at + size == spelled.size();
      const auto found =
          parts_.vocabulary.find((at > 0 ? parts_.prefix : "") + spelled.substr(at, size) +
                                 (is_last ? parts_.suffix : ""));
      at += size;
      if (found != parts_.vocabulary.end()) {
        write_unknown();
        ids[out.num_ids++] = found->second;
      } else if (parts_.unknown) {
        if (!parts_.fuses_unknown) write_unknown();
        has_unknown = true;
      } else {
        ++out.num_without_token;
      }
    }
    write_unknown();
    BpeScratch scratch;
    out.num_ids = scratch.merge(parts_.merges, ids, out.num_ids);
    return out;
  }

 private:
  AffixedBpe parts_;
};

class WordLevel final : public WordModel {
 public:
  WordLevel(Vocabulary vocabulary, TokenId unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}

  Read read(std::string_view word, TokenId* ids) const override {
    const auto found = vocabulary_.find(std::string(word));
    *ids = found == vocabulary_.end() ? unknown_ : found->second;
    return {.num_ids = 1};
  }

 private:
  Vocabulary vocabulary_;
  TokenId unknown_;
};

}  // namespace

std::unique_ptr<WordModel> make_affixed_bpe(AffixedBpe parts) {
  return std::make_unique<AffixedBpeModel>(std::move(parts));
}

std::unique_ptr<WordModel> make_unigram(const Vocabulary& vocabulary, std::vector<double> scores,
                                        std::optional<TokenId> unknown, bool byte_fallback) {
  return std::make_unique<Unigram>(vocabulary, std::move(scores), unknown, byte_fallback);
}

std::unique_ptr<WordModel> make_word_piece(const Vocabulary& vocabulary, std::string_view prefix,
                                           size_t most, TokenId unknown) {
  return std::make_unique<WordPiece>(vocabulary, prefix, most, unknown);
}

std::unique_ptr<WordModel> make_word_level(Vocabulary vocabulary, TokenId unknown) {
  return std::make_unique<WordLevel>(std::move(vocabulary), unknown);
}

}  // namespace atl::tokenizer
