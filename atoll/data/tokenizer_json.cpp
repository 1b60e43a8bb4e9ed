// Reads tokenizer.json. What changes ids and is not supported is refused by name.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "atoll/base/bytes.h"
#include "atoll/base/error.h"
#include "atoll/base/hash.h"
#include "atoll/data/byte_alphabet.h"
#include "atoll/data/json_text.h"
#include "atoll/data/tokenizer_tables.h"
#include "atoll/data/utf8.h"

namespace atl::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxIds = size_t{1} << 22;  // 4 M ids: several times today's largest vocabulary.

class Reader {
 public:
  Reader(std::string_view text, std::string name) : name_(std::move(name)) {
    json_ = parse_json(text, "'" + name_ + "'");
    if (!json_.is_object() || !json_.contains("model")) fail("not a tokenizer.json: no \"model\"");
  }

  void check_components() const {
    for (const auto& [key, value] : json_.items()) {
      const bool known = key == "version" || key == "truncation" || key == "padding" ||
                         key == "added_tokens" || key == "normalizer" || key == "pre_tokenizer" ||
                         key == "post_processor" || key == "decoder" || key == "model";
      if (!known) unsupported(fmt::format("the key \"{}\"", key));
    }
    for (const char* key : {"truncation", "padding", "normalizer"}) {
      if (json_.contains(key) && !json_[key].is_null()) {
        unsupported(fmt::format("{} {}", key, type_of(json_[key])));
      }
    }
    check_pre_tokenizer();
    if (type_of(part("decoder")) != "ByteLevel") {
      unsupported(fmt::format("decoder {}", type_of(part("decoder"))));
    }
  }

  void read_model(TokenizerTables& tables) const {
    const Json& model = part("model");
    // Old files leave the type out; they are told by their merges.
    if (model.contains("type") ? type_of(model) != "BPE" : !model.contains("merges")) {
      unsupported(fmt::format("model {}", type_of(model)));
    }
    const auto refuse_unless_off = [&](const char* key) {
      if (!model.contains(key)) return;
      const Json& value = model[key];
      const bool off = value.is_null() || value == Json(false) || value == Json("") ||
                       (value.is_number() && value == Json(0));
      if (!off) unsupported(fmt::format("model.{} = {}", key, brief(value)));
    };
    for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix",
                            "end_of_word_suffix", "byte_fallback", "ignore_merges"}) {
      refuse_unless_off(key);
    }
    read_vocabulary(field(model, "model", "vocab"), tables);
    read_merges(field(model, "model", "merges"), tables);
  }

  void read_added_tokens(TokenizerTables& tables) const {
    if (!json_.contains("added_tokens") || json_["added_tokens"].is_null()) return;
    if (!json_["added_tokens"].is_array()) fail("\"added_tokens\" is not a list");
    for (const Json& entry : json_["added_tokens"]) {
      AddedToken token;
      token.content = text(entry, "added_tokens", "content");
      token.id = to_id(field(entry, "added_tokens", "id"), "added_tokens");
      token.special = flag(entry, "special", false);
      token.normalized = flag(entry, "normalized", !token.special);
      for (const char* key : {"single_word", "lstrip", "rstrip"}) {
        if (flag(entry, key, false)) {
          unsupported(fmt::format("{} of the added token \"{}\"", key, token.content));
        }
      }
      if (token.content.empty()) {
        fail(fmt::format("added_tokens: the token with id {} has no content", token.id));
      }
      require_own_id(tables, token);
      set_bytes(tables, token.id, token.content);
      tables.added.push_back(std::move(token));
    }
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    for (const AddedToken& token : tables.added) {
      (token.normalized ? normalized : raw).push_back(token);
    }
    tables.raw = AddedTokenMatcher(std::move(raw));
    tables.normalized = AddedTokenMatcher(std::move(normalized));
  }

  /// TemplateProcessing puts tokens around a text; ByteLevel only moves offsets.
  void read_post_processor(TokenizerTables& tables) const {
    if (!json_.contains("post_processor") || json_["post_processor"].is_null()) return;
    const Json& processor = json_["post_processor"];
    if (type_of(processor) == "ByteLevel") return;
    if (type_of(processor) != "TemplateProcessing") {
      unsupported(fmt::format("post_processor {}", type_of(processor)));
    }
    const Json& pieces = field(processor, "post_processor", "single");
    const Json& specials = field(processor, "post_processor", "special_tokens");
    if (!pieces.is_array()) fail("\"post_processor.single\" is not a list");
    bool after_text = false;
    for (const Json& piece : pieces) {
      if (piece.is_object() && piece.contains("Sequence")) {
        if (after_text) unsupported("post_processor that repeats the text");
        after_text = true;
        continue;
      }
      const std::string name = text(field(piece, "post_processor.single", "SpecialToken"),
                                    "post_processor.single", "id");
      const Json& ids = field(field(specials, "post_processor.special_tokens", name.c_str()),
                              "post_processor.special_tokens", "ids");
      if (!ids.is_array()) fail("\"post_processor.special_tokens.ids\" is not a list");
      for (const Json& id : ids) {
        (after_text ? tables.suffix : tables.prefix)
            .push_back(known_id(tables, id, "post_processor"));
      }
    }
    if (!after_text) unsupported("post_processor without the text");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("'{}': {}", name_, what));
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(
        fmt::format("{} is not supported: this version reads byte-level BPE with GPT-2's "
                    "pre-tokenizer",
                    what));
  }
  static std::string brief(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60);
  }
  static std::string type_of(const Json& component) {
    if (!component.is_object() || !component.contains("type")) return brief(component);
    const Json& type = component["type"];
    return type.is_string() ? type.get<std::string>() : brief(type);
  }
  const Json& part(const char* key) const { return field(json_, "the file", key); }
  const Json& field(const Json& object, const char* where, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      fail(fmt::format("{} lacks \"{}\"", where, key));
    }
    return object[key];
  }
  std::string text(const Json& object, const char* where, const char* key) const {
    const Json& value = field(object, where, key);
    if (!value.is_string()) fail(fmt::format("\"{}\" in {} is not a string", key, where));
    return value.get<std::string>();
  }
  bool flag(const Json& object, const char* key, bool otherwise) const {
    if (!object.contains(key)) return otherwise;
    if (!object[key].is_boolean()) fail(fmt::format("\"{}\" is not true or false", key));
    return object[key].get<bool>();
  }
  TokenId to_id(const Json& value, const char* where) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= kMaxIds) {
      fail(fmt::format("{}: {} is not a token id (0 to {})", where, brief(value), kMaxIds - 1));
    }
    return value.get<TokenId>();
  }
  TokenId known_id(const TokenizerTables& tables, const Json& value, const char* where) const {
    const TokenId id = to_id(value, where);
    const auto at = static_cast<size_t>(id);
    if (at >= tables.bytes.size() || !tables.is_known[at]) {
      fail(fmt::format("{}: id {} is not in the vocabulary", where, id));
    }
    return id;
  }

  void check_pre_tokenizer() const {
    const Json& pre = part("pre_tokenizer");
    if (type_of(pre) != "ByteLevel") unsupported(fmt::format("pre_tokenizer {}", type_of(pre)));
    if (flag(pre, "add_prefix_space", true)) unsupported("pre_tokenizer.add_prefix_space = true");
    if (!flag(pre, "use_regex", true)) unsupported("pre_tokenizer.use_regex = false");
  }

  /// An added token may repeat its entry in the vocabulary, but not take another token's id: texts
  /// with that token would decode to something else.
  void require_own_id(const TokenizerTables& tables, const AddedToken& token) const {
    const auto at = static_cast<size_t>(token.id);
    if (at >= tables.bytes.size() || !tables.is_known[at]) return;
    const Json& vocabulary = json_["model"]["vocab"];
    const auto found = vocabulary.find(token.content);
    const bool is_itself = found != vocabulary.end() && *found == token.id;
    const bool is_repeated = std::ranges::any_of(tables.added, [&](const AddedToken& other) {
      return other.id == token.id && other.content == token.content;
    });
    if (is_itself || is_repeated) return;
    fail(fmt::format("added_tokens: \"{}\" has id {}, which is the id of another token",
                     token.content, token.id));
  }

  static void set_bytes(TokenizerTables& tables, TokenId id, std::string bytes) {
    const auto at = static_cast<size_t>(id);
    if (at >= tables.bytes.size()) {
      tables.bytes.resize(at + 1);
      tables.is_known.resize(at + 1);
    }
    tables.bytes[at] = std::move(bytes);
    tables.is_known[at] = true;
  }

  void read_vocabulary(const Json& vocabulary, TokenizerTables& tables) const {
    if (!vocabulary.is_object()) fail("\"model.vocab\" is not an object");
    for (const auto& [spelling, value] : vocabulary.items()) {
      const TokenId id = to_id(value, "model.vocab");
      if (static_cast<size_t>(id) < tables.is_known.size() &&
          tables.is_known[static_cast<size_t>(id)]) {
        fail(fmt::format("model.vocab: id {} is given twice", id));
      }
      set_bytes(tables, id, read_spelling(spelling).value_or(spelling));
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      std::string spelling;
      append_utf8(spelling, byte_to_char(static_cast<uint8_t>(byte)));
      if (!vocabulary.contains(spelling)) {
        fail(fmt::format("model.vocab lacks byte {} (\"{}\"): text with it could not be encoded",
                         byte, spelling));
      }
      tables.byte_ids[byte] = vocabulary[spelling].get<TokenId>();
    }
  }

  void read_merges(const Json& merges, TokenizerTables& tables) const {
    const Json& vocabulary = json_["model"]["vocab"];
    if (!merges.is_array()) fail("\"model.merges\" is not a list");
    tables.merges = MergeTable(merges.size());
    const auto id_of = [&](size_t rank, const std::string& token) {
      const auto found = vocabulary.find(token);
      if (found == vocabulary.end()) {
        fail(fmt::format("model.merges entry {}: \"{}\" is not in the vocabulary", rank, token));
      }
      return found->get<TokenId>();
    };
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const auto [left, right] = split_merge(merges[rank], rank);
      tables.merges.insert(id_of(rank, left), id_of(rank, right),
                           {static_cast<uint32_t>(rank), id_of(rank, left + right)});
    }
  }

  /// "left right" in older files, ["left", "right"] in newer ones.
  std::pair<std::string, std::string> split_merge(const Json& merge, size_t rank) const {
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
    fail(fmt::format("model.merges entry {} is not a pair of tokens", rank));
  }

  std::string name_;
  Json json_;
};

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view json, const std::string& name) {
  const Reader reader(json, name);
  auto tables = std::make_unique<TokenizerTables>();
  tables->json = json;
  tables->sha256 = hex(atl::sha256(as_byte_span(json)));
  reader.check_components();
  reader.read_model(*tables);
  reader.read_added_tokens(*tables);
  reader.read_post_processor(*tables);
  return Tokenizer(std::move(tables));
}

}  // namespace atl::data
