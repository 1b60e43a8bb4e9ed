// The parts of tokenizer.json around the model. What changes ids and is not known is refused by
// name; a regular expression is known by its text.
#include <algorithm>
#include <array>

#include "atoll/tokenizer/tokenizer_file.h"

namespace atl::tokenizer {
namespace {

struct KnownPattern {
  WordRule words;
  std::string_view pattern;
};

constexpr std::array kKnownPatterns = {
    KnownPattern{WordRule::kGpt2,
                 R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    KnownPattern{WordRule::kCl100k,
                 R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
                 R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    // The same with possessive quantifiers, as tiktoken writes it.
    KnownPattern{WordRule::kCl100k, R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3})"
                                    R"(| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    KnownPattern{WordRule::kQwen, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                  R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

bool is_mark_replacement(const TokenizerFile& file, const Json& replace, std::string_view from,
                         std::string_view to) {
  const Json& pattern = file.field(replace, "Replace", "pattern");
  return pattern.is_object() && pattern.size() == 1 && pattern.contains("String") &&
         pattern["String"] == from && file.text(replace, "Replace", "content") == to;
}

void read_normalizer(const TokenizerFile& file, TextNormalizer& normalizer) {
  for (const Json& step : file.steps(file.part("normalizer"), "normalizers")) {
    const std::string type = TokenizerFile::type_of(step);
    if (type == "NFC") {
      normalizer.nfc = true;
    } else if (type == "Prepend" && step.value("prepend", Json()) == kMark &&
               !normalizer.prepends) {
      normalizer.prepends = true;
    } else if (type == "Replace" && is_mark_replacement(file, step, " ", kMark)) {
      normalizer.marks = true;
    } else {
      file.unsupported("normalizer " + (type == "Prepend" || type == "Replace"
                                            ? TokenizerFile::brief(step)
                                            : type));
    }
  }
  if (normalizer.prepends && !normalizer.marks) {
    file.unsupported("normalizer Prepend without Replace of spaces");
  }
}

WordRule read_split(const TokenizerFile& file, const Json& split) {
  const std::string behavior = file.text(split, "Split", "behavior");
  const bool invert = file.flag(split, "invert", false);
  // Words are what the pattern matches, or what lies between matches that vanish; all of a text is
  // matched, so the two are one.
  const bool keeps_matches =
      (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
  if (!keeps_matches) {
    file.unsupported(
        fmt::format("pre_tokenizer Split with behavior {}, invert {}", behavior, invert));
  }
  const Json& pattern = file.field(split, "Split", "pattern");
  if (pattern.is_object() && pattern.contains("Regex")) {
    const auto found = std::ranges::find_if(kKnownPatterns, [&](const KnownPattern& known) {
      return pattern["Regex"] == known.pattern;
    });
    if (found != kKnownPatterns.end()) return found->words;
  }
  file.unsupported("pre_tokenizer Split by the pattern " + TokenizerFile::brief(pattern));
}

/// ByteLevel alone cuts as GPT-2; behind a Split it only spells bytes.
void read_byte_level(const TokenizerFile& file, const std::vector<Json>& steps,
                     TokenizerTables& tables) {
  const Json& byte_level = steps.back();
  const bool uses_regex = file.flag(byte_level, "use_regex", true);
  if (file.flag(byte_level, "add_prefix_space", true)) {
    file.unsupported("pre_tokenizer.add_prefix_space = true");
  }
  if (steps.size() == 1) {
    if (!uses_regex) file.unsupported("pre_tokenizer.use_regex = false without a Split");
    tables.words = WordRule::kGpt2;
    return;
  }
  const std::string first = TokenizerFile::type_of(steps.front());
  if (steps.size() > 2 || first != "Split") file.unsupported("pre_tokenizer " + first);
  if (uses_regex) file.unsupported("pre_tokenizer ByteLevel with use_regex behind a Split");
  tables.words = read_split(file, steps.front());
}

void read_metaspace(const TokenizerFile& file, const Json& metaspace, TokenizerTables& tables) {
  if (file.text(metaspace, "Metaspace", "replacement") != kMark) {
    file.unsupported("pre_tokenizer Metaspace with replacement " +
                     TokenizerFile::brief(metaspace["replacement"]));
  }
  const std::string scheme = metaspace.contains("prepend_scheme")
                                 ? file.text(metaspace, "Metaspace", "prepend_scheme")
                                 : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    file.fail("Metaspace: prepend_scheme is not always, first or never");
  }
  if (!file.flag(metaspace, "add_prefix_space", true) && scheme != "never") {
    file.fail("Metaspace: add_prefix_space = false contradicts prepend_scheme " + scheme);
  }
  tables.metaspace.is_used = true;
  tables.metaspace.prepend = scheme == "always"  ? Metaspace::Prepend::kAlways
                             : scheme == "first" ? Metaspace::Prepend::kFirst
                                                 : Metaspace::Prepend::kNever;
  tables.metaspace.splits = file.flag(metaspace, "split", true);
}

void read_pre_tokenizer(const TokenizerFile& file, TokenizerTables& tables) {
  const std::vector<Json> steps = file.steps(file.part("pre_tokenizer"), "pretokenizers");
  const std::string last = steps.empty() ? "" : TokenizerFile::type_of(steps.back());
  if (last == "ByteLevel") {
    if (tables.normalizer.marks) file.unsupported("normalizer Replace before ByteLevel");
    read_byte_level(file, steps, tables);
    return;
  }
  tables.words = WordRule::kJoined;
  if (last == "Metaspace" && steps.size() == 1) {
    read_metaspace(file, steps.front(), tables);
    return;
  }
  if (!steps.empty()) {
    file.unsupported("pre_tokenizer " + TokenizerFile::type_of(steps.front()));
  }
  if (!tables.normalizer.marks) file.unsupported("pre_tokenizer null without a normalizer Replace");
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
  if (tables.words != WordRule::kJoined) {
    if (types != std::vector<std::string>{"ByteLevel"}) refuse();
    return rule;
  }
  if (types == std::vector<std::string>{"Metaspace"}) {
    if (file.text(steps[0], "decoder", "replacement") != kMark) refuse();
    rule.strips_first_mark = steps[0].value("prepend_scheme", Json("always")) != "never";
    return rule;
  }
  size_t at = 0;
  const auto take = [&](const char* type) {
    if (at == types.size() || types[at] != type) return false;
    ++at;
    return true;
  };
  if (!take("Replace") || !is_mark_replacement(file, steps[0], kMark, " ")) refuse();
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
    const TokenId id = file.token_id(value, "post_processor");
    const auto at = static_cast<size_t>(id);
    if (at >= tables.bytes.size() || !tables.is_known[at]) {
      file.fail(fmt::format("post_processor: id {} is not in the vocabulary", id));
    }
    ids.push_back(id);
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

DecoderRule read_components(const TokenizerFile& file, TokenizerTables& tables) {
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
  for (const char* key : {"truncation", "padding"}) {
    if (!file.part(key).is_null()) {
      file.unsupported(fmt::format("{} {}", key, TokenizerFile::type_of(file.part(key))));
    }
  }
  read_normalizer(file, tables.normalizer);
  read_pre_tokenizer(file, tables);
  return read_decoder(file, tables);
}

void read_post_processor(const TokenizerFile& file, TokenizerTables& tables) {
  for (const Json& step : file.steps(file.part("post_processor"), "processors")) {
    const std::string type = TokenizerFile::type_of(step);
    if (type == "TemplateProcessing") {
      read_template(file, step, tables);
    } else if (type != "ByteLevel") {  // That one only moves offsets.
      file.unsupported("post_processor " + type);
    }
  }
}

}  // namespace atl::tokenizer
