// Reads tokenizer.json: the vocabulary, the merges and the added tokens, in between the components
// around them (tokenizer_components.cpp). What changes ids and is not supported is refused by name.
#include <algorithm>

#include "atoll/base/bytes.h"
#include "atoll/base/hash.h"
#include "atoll/base/number.h"
#include "atoll/text/python_text.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/byte_alphabet.h"
#include "atoll/tokenizer/tokenizer_file.h"

namespace atl::tokenizer {
namespace {

/// "<0x0A>" -> 10.
std::optional<uint8_t> read_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return {};
  return number_in<uint8_t>(token.substr(3, 2), 16);
}

class ModelReader {
 public:
  ModelReader(const TokenizerFile& file, const DecoderRule& decoder, TokenizerTables& tables)
      : file_(file), decoder_(decoder), tables_(tables), model_(file.json()["model"]) {}

  void read() {
    check_options();
    vocabulary_ = &file_.field(model_, "model", "vocab");
    if (!vocabulary_->is_object()) file_.fail("\"model.vocab\" is not an object");
    for (const auto& [spelling, value] : vocabulary_->items()) {
      const TokenId id = file_.token_id(value, "model.vocab");
      if (is_known(id)) file_.fail(fmt::format("model.vocab: id {} is given twice", id));
      set_spelling(id, spelling);
    }
    if (is_byte_level()) {
      read_bytes();
    } else {
      read_characters();
    }
    if (file_.flag(model_, "ignore_merges", false)) read_whole_words();
    read_merges();
  }

  void read_added_tokens() {
    const Json& entries = file_.part("added_tokens");
    if (entries.is_null()) return;
    if (!entries.is_array()) file_.fail("\"added_tokens\" is not a list");
    std::unordered_map<std::string, size_t> places;
    auto next_id = static_cast<TokenId>(vocabulary_->size());
    for (const Json& entry : entries) {
      AddedToken token = read_added_token(entry);
      const auto [place, is_new] = places.emplace(token.content, tables_.added.size());
      if (!is_new) {
        if (tables_.added[place->second].id != token.id) refuse_id(token);
        tables_.added[place->second] = std::move(token);
        continue;
      }
      check_id(token, next_id);
      tables_.added.push_back(std::move(token));
    }
    make_matchers();
  }

 private:
  bool is_byte_level() const { return tables_.words != WordRule::kJoined; }
  bool is_known(TokenId id) const {
    const auto at = static_cast<size_t>(id);
    return at < tables_.is_known.size() && tables_.is_known[at];
  }

  void check_options() const {
    // Old files leave the type out; they are told by their merges.
    if (model_.is_object() && model_.contains("type") ? TokenizerFile::type_of(model_) != "BPE"
                                                      : !model_.contains("merges")) {
      file_.unsupported(fmt::format("model {}", TokenizerFile::type_of(model_)));
    }
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!model_.contains(key)) continue;
      const Json& value = model_[key];
      const bool off =
          value.is_null() || value == Json("") || (value.is_number() && value == Json(0));
      if (!off) {
        file_.unsupported(fmt::format("model.{} = {}", key, TokenizerFile::brief(value)));
      }
    }
    if (!is_byte_level() && file_.flag(model_, "ignore_merges", false)) {
      file_.unsupported("model.ignore_merges without ByteLevel");
    }
  }

  /// What the file spells so is decoded to this.
  void set_spelling(TokenId id, const std::string& spelling) {
    const auto at = static_cast<size_t>(id);
    if (at >= tables_.bytes.size()) {
      tables_.bytes.resize(at + 1);
      tables_.is_known.resize(at + 1);
    }
    tables_.is_known[at] = true;
    std::string& bytes = tables_.bytes[at];
    tables_.first_bytes.erase(id);
    if (is_byte_level()) {
      bytes = read_spelling(spelling).value_or(spelling);
      return;
    }
    if (const auto byte = read_byte_token(spelling); byte && decoder_.byte_fallback) {
      bytes = static_cast<char>(*byte);
      return;
    }
    bytes = text::replace_text(spelling, kMark, " ", -1);
    if (decoder_.strips_first_mark && bytes.size() != spelling.size()) {
      tables_.first_bytes[id] = text::replace_text(spelling, kMark, "", -1);
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
    for (const auto& [spelling, value] : vocabulary_->items()) {
      // A text's spaces are marks, so a token that is a space never comes up.
      if (spelling.empty() || spelling == " ") continue;
      const text::CodePoint first = text::decode_utf8(spelling);
      if (first.num_bytes != spelling.size()) continue;
      const uint32_t code = spelling == kMark ? uint32_t{' '} : first.value;
      tables_.symbols.set_character(code, value.get<TokenId>());
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

  /// Real vocabularies lack bytes that no text has, and some of control characters.
  bool set_byte(uint8_t byte, const std::string& spelling) {
    const auto found = vocabulary_->find(spelling);
    if (found == vocabulary_->end()) return false;
    tables_.symbols.set_byte(byte, found->get<TokenId>());
    return true;
  }

  void read_unknown() {
    if (!model_.contains("unk_token") || model_["unk_token"].is_null()) return;
    const std::string unknown = file_.text(model_, "model", "unk_token");
    tables_.symbols.set_unknown(id_of(unknown, "model.unk_token"),
                                file_.flag(model_, "fuse_unk", false));
  }

  void read_whole_words() {
    for (const auto& [spelling, value] : vocabulary_->items()) {
      if (const auto bytes = read_spelling(spelling)) {
        tables_.whole_words[*bytes] = value.get<TokenId>();
      }
    }
  }

  TokenId id_of(const std::string& token, const std::string& where) const {
    const auto found = vocabulary_->find(token);
    if (found == vocabulary_->end()) {
      file_.fail(fmt::format("{}: \"{}\" is not in the vocabulary", where, token));
    }
    return found->get<TokenId>();
  }

  void read_merges() {
    const Json& merges = file_.list(model_, "model", "merges");
    tables_.merges = MergeTable(merges.size());
    if (!is_byte_level()) cut_between_characters();
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string where = fmt::format("model.merges entry {}", rank);
      const auto [left, right] = split_merge(merges[rank], where);
      tables_.merges.insert(id_of(left, where), id_of(right, where),
                            {static_cast<uint32_t>(rank), id_of(left + right, where)});
      if (!is_byte_level()) join(left, right);
    }
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

  AddedToken read_added_token(const Json& entry) const {
    AddedToken token;
    token.content = file_.text(entry, "added_tokens", "content");
    token.id = file_.token_id(file_.field(entry, "added_tokens", "id"), "added_tokens");
    token.special = file_.flag(entry, "special", false);
    token.normalized = file_.flag(entry, "normalized", !token.special);
    token.single_word = file_.flag(entry, "single_word", false);
    token.lstrip = file_.flag(entry, "lstrip", false);
    token.rstrip = file_.flag(entry, "rstrip", false);
    if (token.content.empty()) {
      file_.fail(fmt::format("added_tokens: the token with id {} has no content", token.id));
    }
    return token;
  }

  [[noreturn]] void refuse_id(const AddedToken& token) const {
    file_.fail(fmt::format("added_tokens: \"{}\" has id {}, which is the id of another token",
                           token.content, token.id));
  }

  /// An added token may repeat its entry in the vocabulary, but not take another token's id: texts
  /// with that token would decode to something else. New ones follow the vocabulary without gaps:
  /// `tokenizers` deals their ids itself, and a file that says otherwise means two things.
  void check_id(const AddedToken& token, TokenId& next_id) const {
    const auto found = vocabulary_->find(token.content);
    const bool is_new = found == vocabulary_->end();
    const TokenId dealt = is_new ? next_id++ : found->get<TokenId>();
    if (token.id == dealt && (!is_new || !is_known(token.id))) return;
    if (is_known(token.id)) refuse_id(token);
    file_.fail(
        fmt::format("added_tokens: \"{}\" has id {}, but Hugging Face's library would give it {}: "
                    "list added tokens in the order of their ids, without gaps",
                    token.content, token.id, dealt));
  }

  void make_matchers() {
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    std::string nfc_scratch;
    std::string mark_scratch;
    for (AddedToken token : tables_.added) {
      if (token.normalized) {
        token.content = tables_.normalizer.apply(token.content, nfc_scratch, mark_scratch);
      }
      const bool has_marks = token.normalized && tables_.normalizer.marks;
      const std::string spelling =
          has_marks ? text::replace_text(token.content, " ", kMark, -1) : token.content;
      set_spelling(token.id, spelling);
      if (is_byte_level()) tables_.bytes[static_cast<size_t>(token.id)] = spelling;
      (token.normalized ? normalized : raw).push_back(std::move(token));
    }
    const auto space = tables_.normalizer.marks ? SpaceMeaning::kMark : SpaceMeaning::kSpace;
    tables_.raw = AddedTokenMatcher(std::move(raw), SpaceMeaning::kSpace);
    tables_.normalized = AddedTokenMatcher(std::move(normalized), space);
  }

  const TokenizerFile& file_;
  const DecoderRule& decoder_;
  TokenizerTables& tables_;
  const Json& model_;
  const Json* vocabulary_ = nullptr;
};

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  const TokenizerFile file(json, name);
  auto tables = std::make_unique<TokenizerTables>();
  tables->json = json;
  tables->sha256 = hex(atl::sha256(as_byte_span(json)));
  const DecoderRule decoder = read_components(file, *tables);
  ModelReader model(file, decoder, *tables);
  model.read();
  model.read_added_tokens();
  read_post_processor(file, *tables);
  return Tokenizer(std::move(tables));
}

}  // namespace atl::tokenizer
