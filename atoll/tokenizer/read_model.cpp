// The model of tokenizer.json: the vocabulary and what makes its tokens of a word. What changes ids
// and is not supported is refused by name.
#include <algorithm>

#include "atoll/base/number.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/byte_alphabet.h"
#include "atoll/tokenizer/tokenizer_file.h"

namespace atl::tokenizer {
namespace {

/// What words may become.
Vocabulary without_special_tokens(const TokenizerFile& file, Vocabulary vocabulary) {
  for (const std::string& token : file.special_tokens()) vocabulary.erase(token);
  return vocabulary;
}

class BpeReader {
 public:
  BpeReader(const TokenizerFile& file, const Vocabulary& vocabulary, TokenizerTables& tables)
      : file_(file), vocabulary_(vocabulary), tables_(tables), model_(file.json()["model"]) {}

  void read() {
    check_options();
    if (file_.has_affixes()) return read_affixed();
    if (is_byte_level()) {
      read_bytes();
    } else {
      read_characters();
    }
    if (file_.flag(model_, "ignore_merges", false)) read_whole_words();
    read_merges();
  }

 private:
  bool is_byte_level() const { return tables_.is_byte_level; }
  /// Spaces in here stand for marks.
  bool has_marks() const { return tables_.words == WordRule::kJoined; }

  void check_options() const {
    if (model_.contains("dropout") && !model_["dropout"].is_null() && model_["dropout"] != 0) {
      file_.unsupported("model.dropout = " + TokenizerFile::brief(model_["dropout"]));
    }
    if (has_marks() && file_.flag(model_, "ignore_merges", false)) {
      file_.unsupported("model.ignore_merges of a text that nothing cuts");
    }
  }

  void read_bytes() {
    bool lacks_one = false;
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string spelling;
      text::append_utf8(spelling, byte_to_char(static_cast<uint8_t>(byte)));
      lacks_one |= !set_byte(static_cast<uint8_t>(byte), spelling);
    }
    if (lacks_one) read_unknown();
  }

  void read_characters() {
    for (const auto& [spelling, id] : vocabulary_) {
      // Where a text's spaces are marks, a token that is a space never comes up.
      if (spelling.empty() || (has_marks() && spelling == " ")) continue;
      const text::CodePoint first = text::decode_utf8(spelling);
      if (first.num_bytes != spelling.size()) continue;
      const uint32_t code = has_marks() && spelling == kMark ? uint32_t{' '} : first.value;
      tables_.symbols.set_character(code, id);
    }
    if (tables_.symbols.is_bytes()) file_.fail("model.vocab has no token of one character");
    bool lacks_one = true;
    if (file_.flag(model_, "byte_fallback", false)) {
      lacks_one = false;
      for (unsigned byte = 0; byte < 256; ++byte) {
        lacks_one |= !set_byte(static_cast<uint8_t>(byte), fmt::format("<0x{:02X}>", byte));
      }
    }
    if (lacks_one) read_unknown();
  }

  /// Tokens say whether they begin, continue or end a word.
  void read_affixed() {
    if (file_.flag(model_, "byte_fallback", false) || file_.flag(model_, "ignore_merges", false)) {
      file_.unsupported("model.byte_fallback or ignore_merges with a prefix or suffix of tokens");
    }
    AffixedBpe parts = {.vocabulary = vocabulary_,
                        .prefix = file_.affix("continuing_subword_prefix"),
                        .suffix = file_.affix("end_of_word_suffix"),
                        .spells_bytes = is_byte_level(),
                        .unknown = unknown_id(),
                        .fuses_unknown = file_.flag(model_, "fuse_unk", false)};
    parts.merges = merge_table(parts.prefix.size());
    tables_.model = make_affixed_bpe(std::move(parts));
  }

  /// Real vocabularies lack bytes that no text has, and some of control characters.
  bool set_byte(uint8_t byte, const std::string& spelling) {
    const auto found = vocabulary_.find(spelling);
    if (found == vocabulary_.end()) return false;
    tables_.symbols.set_byte(byte, found->second);
    return true;
  }

  std::optional<TokenId> unknown_id() const {
    if (!model_.contains("unk_token") || model_["unk_token"].is_null()) return {};
    return id_of(file_.text(model_, "model", "unk_token"), "model.unk_token");
  }
  void read_unknown() {
    if (const auto id = unknown_id()) {
      tables_.symbols.set_unknown(*id, file_.flag(model_, "fuse_unk", false));
    }
  }

  void read_whole_words() {
    for (const auto& [spelling, id] : without_special_tokens(file_, vocabulary_)) {
      const auto bytes = is_byte_level() ? read_spelling(spelling) : std::optional(spelling);
      if (bytes) tables_.whole_words[*bytes] = id;
    }
  }

  TokenId id_of(const std::string& token, const std::string& where) const {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end()) {
      file_.fail(fmt::format("{}: \"{}\" is not in the vocabulary", where, token));
    }
    return found->second;
  }

  /// `num_prefix`: bytes of the right token that the merged one has not.
  MergeTable merge_table(size_t num_prefix) {
    const Json& merges = file_.list(model_, "model", "merges");
    MergeTable table(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string where = fmt::format("model.merges entry {}", rank);
      const auto [left, right] = split_merge(merges[rank], where);
      const std::string merged = left + right.substr(std::min(num_prefix, right.size()));
      table.insert(id_of(left, where), id_of(right, where),
                   {static_cast<uint32_t>(rank), id_of(merged, where)});
      if (has_marks()) join(left, right);
    }
    return table;
  }

  void read_merges() {
    if (has_marks()) cut_between_characters();
    tables_.merges = merge_table(0);
    if (!tables_.metaspace.is_used || !tables_.metaspace.splits) return;
    for (int left = 0; left < 256; ++left) tables_.joins.cut(static_cast<uint8_t>(left), ' ');
  }

  /// Between characters of ASCII that have tokens, until a merge joins them. Any other neighbour
  /// may be bytes, or unknown ones that fuse.
  void cut_between_characters() {
    for (uint8_t left = 0; left < 128; ++left) {
      for (uint8_t right = 0; right < 128; ++right) {
        if (tables_.symbols.has_character(left) && tables_.symbols.has_character(right)) {
          tables_.joins.cut(left, right);
        }
      }
    }
  }
  void join(const std::string& left, const std::string& right) {
    if (left.empty() || right.empty()) return;
    const char last = left.ends_with(kMark) ? ' ' : left.back();
    const char first = right.starts_with(kMark) ? ' ' : right.front();
    tables_.joins.join(static_cast<uint8_t>(last), static_cast<uint8_t>(first));
  }

  /// "left right" in older files, ["left", "right"] in newer ones.
  std::pair<std::string, std::string> split_merge(const Json& merge,
                                                  const std::string& where) const {
    if (merge.is_string()) {
      const auto both = merge.get<std::string>();
      const size_t space = both.find(' ');
      if (space != std::string::npos && both.find(' ', space + 1) == std::string::npos) {
        return {both.substr(0, space), both.substr(space + 1)};
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      return {merge[0].get<std::string>(), merge[1].get<std::string>()};
    }
    file_.fail(where + " is not a pair of tokens");
  }

  const TokenizerFile& file_;
  const Vocabulary& vocabulary_;
  TokenizerTables& tables_;
  const Json& model_;
};

/// At each place of a text its beginning is compared with tokens.
void check_length(const TokenizerFile& file, const std::string& token) {
  constexpr size_t kMost = 4096;
  if (token.size() > kMost) file.fail(fmt::format("model.vocab: a token is longer than {}", kMost));
}

Vocabulary read_vocabulary(const TokenizerFile& file, const DecoderRule& decoder,
                           TokenizerTables& tables) {
  const Json& entries = file.field(file.json()["model"], "model", "vocab");
  if (!entries.is_object()) file.fail("\"model.vocab\" is not an object");
  const bool is_bpe = file.model_type() == "BPE";
  Vocabulary vocabulary;
  vocabulary.reserve(entries.size());
  for (const auto& [spelling, value] : entries.items()) {
    const TokenId id = file.token_id(value, "model.vocab");
    if (tables.knows(id)) file.fail(fmt::format("model.vocab: id {} is given twice", id));
    if (!is_bpe) check_length(file, spelling);
    tables.spell(id, spelling, decoder);
    vocabulary.emplace(spelling, id);
  }
  return vocabulary;
}

Vocabulary read_unigram(const TokenizerFile& file, const DecoderRule& decoder,
                        TokenizerTables& tables) {
  const Json& model = file.json()["model"];
  const Json& entries = file.list(model, "model", "vocab");
  if (entries.empty()) file.fail("\"model.vocab\" is empty");
  if (entries.size() > TokenizerFile::kMaxIds) file.fail("\"model.vocab\" has too many tokens");
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const Json& entry : entries) {
    const bool is_pair =
        entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_number();
    if (!is_pair) {
      file.fail(fmt::format("model.vocab entry {} is no token and score", scores.size()));
    }
    const auto id = static_cast<TokenId>(scores.size());
    const auto token = entry[0].get<std::string>();
    scores.push_back(entry[1].get<double>());
    check_length(file, token);
    tables.spell(id, token, decoder);
    if (!vocabulary.emplace(token, id).second) {
      file.fail(fmt::format("model.vocab: \"{}\" is given twice", token));
    }
  }
  std::optional<TokenId> unknown;
  if (model.contains("unk_id") && !model["unk_id"].is_null()) {
    unknown = file.token_id(model["unk_id"], "model.unk_id");
    if (!tables.knows(*unknown)) file.fail("model.unk_id is not in the vocabulary");
  }
  tables.model = make_unigram(without_special_tokens(file, vocabulary), std::move(scores), unknown,
                              file.flag(model, "byte_fallback", false));
  return vocabulary;
}

TokenId unknown_in(const TokenizerFile& file, const Vocabulary& vocabulary) {
  const std::string unknown = file.text(file.json()["model"], "model", "unk_token");
  const auto found = vocabulary.find(unknown);
  if (found == vocabulary.end()) {
    file.fail(fmt::format("model.unk_token: \"{}\" is not in the vocabulary", unknown));
  }
  return found->second;
}

}  // namespace

Vocabulary read_model(const TokenizerFile& file, const DecoderRule& decoder,
                      TokenizerTables& tables) {
  const Json& model = file.json()["model"];
  const std::string type = file.model_type();
  const bool is_known =
      type == "BPE" || type == "Unigram" || type == "WordPiece" || type == "WordLevel";
  if (!is_known) file.unsupported("model " + type);
  if (type != "BPE" && tables.is_byte_level) file.unsupported("model " + type + " of bytes");
  if (type == "Unigram") return read_unigram(file, decoder, tables);
  Vocabulary vocabulary = read_vocabulary(file, decoder, tables);
  if (type == "BPE") {
    BpeReader(file, vocabulary, tables).read();
  } else if (type == "WordLevel") {
    tables.model =
        make_word_level(without_special_tokens(file, vocabulary), unknown_in(file, vocabulary));
  } else {
    tables.model = make_word_piece(without_special_tokens(file, vocabulary),
                                   file.text(model, "model", "continuing_subword_prefix"),
                                   file.count(model, "model", "max_input_chars_per_word"),
                                   unknown_in(file, vocabulary));
  }
  return vocabulary;
}

}  // namespace atl::tokenizer
