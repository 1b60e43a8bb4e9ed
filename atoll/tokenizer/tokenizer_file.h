#pragma once
// tokenizer.json as its readers see it: fields with their types checked, and errors that name the
// file. Internal to the tokenizer's own files.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "atoll/base/error.h"
#include "atoll/text/json_text.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/tokenizer_tables.h"

namespace atl::tokenizer {

using Json = nlohmann::json;

class TokenizerFile {
 public:
  static constexpr size_t kMaxIds = size_t{1} << 22;  // 4 M: several times today's largest.

  TokenizerFile(Json json, std::string name) : name_(std::move(name)), json_(std::move(json)) {
    if (!json_.is_object() || !json_.contains("model")) fail("not a tokenizer.json: no \"model\"");
  }

  /// Old files leave the type out; those of BPE are told by their merges.
  std::string model_type() const {
    const Json& model = json_["model"];
    if (!model.is_object()) fail("\"model\" is not an object");
    return model.contains("type") || !model.contains("merges") ? type_of(model) : "BPE";
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(fmt::format("'{}': {}", name_, what));
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(fmt::format("{} is not supported (docs/formats_text.md lists the parts that are)", what));
  }

  const Json& json() const { return json_; }
  /// The part of the file; null where the file leaves it out.
  const Json& part(const char* key) const {
    static const Json kNull;
    return json_.contains(key) ? json_[key] : kNull;
  }
  const Json& field(const Json& object, const char* where, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      fail(fmt::format("{} lacks \"{}\"", where, key));
    }
    return object[key];
  }
  const Json& list(const Json& object, const char* where, const char* key) const {
    const Json& value = field(object, where, key);
    if (!value.is_array()) fail(fmt::format("\"{}\" in {} is not a list", key, where));
    return value;
  }
  std::string text(const Json& object, const char* where, const char* key) const {
    const Json& value = field(object, where, key);
    if (!value.is_string()) fail(fmt::format("\"{}\" in {} is not a string", key, where));
    return value.get<std::string>();
  }
  bool flag(const Json& object, const char* key, bool otherwise) const {
    if (!object.is_object() || !object.contains(key) || object[key].is_null()) return otherwise;
    if (!object[key].is_boolean()) fail(fmt::format("\"{}\" is not true or false", key));
    return object[key].get<bool>();
  }
  uint64_t count(const Json& object, const char* where, const char* key) const {
    const Json& value = field(object, where, key);
    if (!value.is_number_unsigned()) fail(fmt::format("\"{}\" in {} is no count", key, where));
    return value.get<uint64_t>();
  }
  TokenId token_id(const Json& value, const char* where) const {
    if (!value.is_number_unsigned() || value.get<uint64_t>() >= kMaxIds) {
      fail(fmt::format("{}: {} is not a token id (0 to {})", where, brief(value), kMaxIds - 1));
    }
    return value.get<TokenId>();
  }

  /// BPE whose tokens say so when they do not begin a word, or end one; an empty text is none.
  std::string affix(const char* key) const {
    const Json& model = json_["model"];
    const bool has_one = model.contains(key) && !model[key].is_null();
    return has_one ? text(model, "model", key) : std::string();
  }
  bool has_affixes() const {
    return model_type() == "BPE" &&
           !(affix("continuing_subword_prefix") + affix("end_of_word_suffix")).empty();
  }

  /// What added_tokens says is special: no text of a document may become these tokens.
  std::unordered_set<std::string> special_tokens() const {
    std::unordered_set<std::string> specials;
    const Json& entries = part("added_tokens");
    if (!entries.is_array()) return specials;
    for (const Json& entry : entries) {
      if (flag(entry, "special", false)) specials.insert(text(entry, "added_tokens", "content"));
    }
    return specials;
  }

  /// `component`, or, where it is a Sequence, what it and those in it consist of.
  std::vector<Json> steps(const Json& component, const char* list_key) const {
    std::vector<Json> all;
    if (!component.is_null()) add_steps(component, list_key, 0, all);
    return all;
  }
  /// One character.
  std::string character(const Json& object, const char* where, const char* key) const {
    std::string value = text(object, where, key);
    if (value.empty() || text::decode_utf8(value).num_bytes != value.size()) {
      fail(fmt::format("\"{}\" in {} is not one character", key, where));
    }
    return value;
  }

  /// Whether `replace` is a Replace of that text by the other.
  bool replaces(const Json& replace, std::string_view from, std::string_view to) const {
    const Json& pattern = field(replace, "Replace", "pattern");
    return pattern.is_object() && pattern.size() == 1 && pattern.contains("String") &&
           pattern["String"] == from && text(replace, "Replace", "content") == to;
  }
  /// What "pattern" in `object` matches.
  Matcher matcher(const Json& object, const char* where) const {
    const Json& pattern = field(object, where, "pattern");
    if (pattern.is_object() && pattern.contains("String")) {
      return match_string(text(pattern, where, "String"));
    }
    try {
      return match_regex(text(pattern, where, "Regex"));
    } catch (const InputError& error) {
      fail(fmt::format("{}: {}", where, error.what()));
    }
  }

  static std::string brief(const Json& value) {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 200);
  }
  static std::string type_of(const Json& component) {
    if (!component.is_object() || !component.contains("type")) return brief(component);
    const Json& type = component["type"];
    return type.is_string() ? type.get<std::string>() : brief(type);
  }

 private:
  void add_steps(const Json& component, const char* list_key, int depth,
                 std::vector<Json>& all) const {
    constexpr int kMostDeep = 8;
    constexpr size_t kMostSteps = 100;
    if (depth > kMostDeep || all.size() > kMostSteps) {
      fail(fmt::format("more than {} steps or {} Sequences in each other", kMostSteps, kMostDeep));
    }
    if (type_of(component) != "Sequence") return all.push_back(component);
    for (const Json& part : list(component, "a Sequence", list_key)) {
      add_steps(part, list_key, depth + 1, all);
    }
  }

  std::string name_;
  Json json_;
};

/// Refuses what is in no known part of the file.
void check_keys(const TokenizerFile& file);
/// What stands before the model: normalizer and pre-tokenizer.
void read_words(const TokenizerFile& file, TokenizerTables& tables);
/// What stands behind it; read_words() came before.
DecoderRule read_decoder(const TokenizerFile& file, TokenizerTables& tables);
/// Gives the vocabulary without added tokens.
Vocabulary read_model(const TokenizerFile& file, const DecoderRule& decoder,
                      TokenizerTables& tables);
/// The tokens around a text; the vocabulary is known then.
void read_post_processor(const TokenizerFile& file, TokenizerTables& tables);

}  // namespace atl::tokenizer
