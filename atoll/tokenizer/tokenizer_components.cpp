// How ids become text, and the tokens around a text: decoder and post-processor of tokenizer.json.
// What changes ids or text and is not known is refused by name.
#include <array>
#include <utility>

#include "atoll/base/number.h"
#include "atoll/text/python_text.h"
#include "atoll/tokenizer/byte_alphabet.h"
#include "atoll/tokenizer/tokenizer_file.h"

namespace atl::tokenizer {
namespace {

/// "<0x0A>" -> 10.
std::optional<uint8_t> read_byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return {};
  return number_in<uint8_t>(token.substr(3, 2), 16);
}

/// WordPiece: as the library writes English.
std::string cleaned_up(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kJoins = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [apart, joined] : kJoins) text = text::replace_text(text, apart, joined, -1);
  return text;
}

TokenId known_id(const TokenizerFile& file, const Json& value, const TokenizerTables& tables) {
  const TokenId id = file.token_id(value, "post_processor");
  if (!tables.knows(id)) {
    file.fail(fmt::format("post_processor: id {} is not in the vocabulary", id));
  }
  return id;
}

/// Of ["</s>", 2].
TokenId named_id(const TokenizerFile& file, const Json& processor, const char* key,
                 const TokenizerTables& tables) {
  const Json& pair = file.list(processor, "post_processor", key);
  if (pair.size() != 2) file.fail(fmt::format("post_processor: \"{}\" is no token and id", key));
  return known_id(file, pair[1], tables);
}

/// The ids of one piece of a template.
std::vector<TokenId> template_ids(const TokenizerFile& file, const Json& processor,
                                  const Json& piece, const TokenizerTables& tables) {
  if (!piece.is_object() || !piece.contains("SpecialToken")) {
    file.unsupported("post_processor piece " + TokenizerFile::brief(piece));
  }
  const std::string name = file.text(piece["SpecialToken"], "post_processor", "id");
  const Json& specials = file.field(processor, "post_processor", "special_tokens");
  const Json& special = file.field(specials, "post_processor.special_tokens", name.c_str());
  std::vector<TokenId> ids;
  for (const Json& value : file.list(special, "post_processor", "ids")) {
    ids.push_back(known_id(file, value, tables));
  }
  return ids;
}

void read_template(const TokenizerFile& file, const Json& processor, TokenizerTables& tables) {
  std::vector<TokenId> before;
  bool after_text = false;
  for (const Json& piece : file.list(processor, "post_processor", "single")) {
    if (piece.is_object() && piece.contains("Sequence")) {
      if (after_text) file.unsupported("post_processor that repeats the text");
      after_text = true;
      continue;
    }
    const std::vector<TokenId> ids = template_ids(file, processor, piece, tables);
    std::vector<TokenId>& side = after_text ? tables.suffix : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!after_text) file.unsupported("post_processor without the text");
  tables.prefix.insert(tables.prefix.begin(), before.begin(), before.end());
}

}  // namespace

void TokenizerTables::spell(TokenId id, const std::string& spelling, const DecoderRule& decoder) {
  const auto at = static_cast<size_t>(id);
  if (at >= bytes.size()) {
    bytes.resize(at + 1);
    is_known.resize(at + 1);
  }
  is_known[at] = true;
  first_bytes.erase(id);
  last_bytes.erase(id);
  if (is_byte_level) {
    bytes[at] = read_spelling(spelling).value_or(spelling);
  } else if (!decoder.ends_word.empty()) {
    bytes[at] = text::replace_text(spelling, decoder.ends_word, " ", -1);
    last_bytes[id] = text::replace_text(spelling, decoder.ends_word, "", -1);
  } else if (decoder.parts_words) {
    const bool continues = decoder.continues && spelling.starts_with(*decoder.continues);
    const auto cleaned = [&](std::string text) {
      return decoder.cleans_up ? cleaned_up(std::move(text)) : std::move(text);
    };
    bytes[at] = cleaned(continues ? spelling.substr(decoder.continues->size()) : " " + spelling);
    first_bytes[id] = cleaned(spelling);
  } else if (const auto byte = read_byte_token(spelling); byte && decoder.byte_fallback) {
    bytes[at] = static_cast<char>(*byte);
  } else {
    bytes[at] = text::replace_text(spelling, kMark, " ", -1);
    if (decoder.strips_first_mark && bytes[at].size() != spelling.size()) {
      first_bytes[id] = text::replace_text(spelling, kMark, "", -1);
    }
  }
}

DecoderRule read_decoder(const TokenizerFile& file, TokenizerTables& tables) {
  const std::vector<Json> steps = file.steps(file.part("decoder"), "decoders");
  std::vector<std::string> types;
  for (const Json& step : steps) types.push_back(TokenizerFile::type_of(step));
  const auto refuse = [&] {
    file.unsupported(
        fmt::format("decoder {}", types.empty() ? "null" : TokenizerFile::brief(types)));
  };
  DecoderRule rule;
  if (tables.is_byte_level) {
    if (types != std::vector<std::string>{"ByteLevel"}) refuse();
    return rule;
  }
  if (types == std::vector<std::string>{"Metaspace"}) {
    if (file.text(steps[0], "decoder", "replacement") != kMark) refuse();
    rule.strips_first_mark = steps[0].value("prepend_scheme", Json("always")) != "never";
    return rule;
  }
  if (types == std::vector<std::string>{"BPEDecoder"}) {
    rule.ends_word = file.text(steps[0], "BPEDecoder", "suffix");
    if (rule.ends_word.empty()) refuse();
    return rule;
  }
  rule.parts_words = types.empty() || types == std::vector<std::string>{"WordPiece"};
  if (types.empty()) return rule;
  if (rule.parts_words) {
    rule.continues = file.text(steps[0], "decoder", "prefix");
    rule.cleans_up = file.flag(steps[0], "cleanup", true);
    return rule;
  }
  size_t at = 0;
  const auto take = [&](const char* type) {
    if (at == types.size() || types[at] != type) return false;
    ++at;
    return true;
  };
  if (!take("Replace") || !file.replaces(steps[0], kMark, " ")) refuse();
  rule.byte_fallback = take("ByteFallback");
  if (!take("Fuse")) refuse();
  if (take("Strip")) {
    const Json& strip = steps[at - 1];
    if (file.text(strip, "Strip", "content") != " " || file.count(strip, "Strip", "stop") != 0) {
      refuse();
    }
    tables.num_stripped = file.count(strip, "Strip", "start");
  }
  if (at != types.size()) refuse();
  return rule;
}

void check_keys(const TokenizerFile& file) {
  for (const auto& [key, value] : file.json().items()) {
    const bool known = key == "version" || key == "truncation" || key == "padding" ||
                       key == "added_tokens" || key == "normalizer" || key == "pre_tokenizer" ||
                       key == "post_processor" || key == "decoder" || key == "model";
    if (!known) file.unsupported(fmt::format("the key \"{}\"", key));
  }
  const Json& version = file.part("version");
  if (!version.is_null() && version != "1.0") {
    file.unsupported(fmt::format("version {}", version.dump()));
  }
}

void read_post_processor(const TokenizerFile& file, TokenizerTables& tables) {
  for (const Json& step : file.steps(file.part("post_processor"), "processors")) {
    const std::string type = TokenizerFile::type_of(step);
    if (type == "TemplateProcessing") {
      read_template(file, step, tables);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      tables.prefix.insert(tables.prefix.begin(), named_id(file, step, "cls", tables));
      tables.suffix.push_back(named_id(file, step, "sep", tables));
    } else if (type != "ByteLevel") {  // That one only moves offsets.
      file.unsupported("post_processor " + type);
    }
  }
}

}  // namespace atl::tokenizer
