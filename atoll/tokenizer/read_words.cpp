// How a text becomes words: normalizer and pre-tokenizer of tokenizer.json. Pre-tokenizers that
// most families have are known by their shape, patterns by their text, and have ways of their own
// here; every other runs step by step.
#include <algorithm>
#include <array>

#include "atoll/base/base64.h"
#include "atoll/text/unicode_classes.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/cl100k_words.h"
#include "atoll/tokenizer/gpt2_words.h"
#include "atoll/tokenizer/tokenizer_file.h"
#include "atoll/tokenizer/word_patterns.h"

namespace atl::tokenizer {
namespace {

struct KnownPattern {
  WordRule words;
  std::string_view pattern;
};

/// All of a text is matched by each.
constexpr std::array kKnownPatterns = {
    KnownPattern{WordRule::kGpt2, kGpt2Pattern}, KnownPattern{WordRule::kCl100k, kCl100kPattern},
    KnownPattern{WordRule::kCl100k, kTiktokenPattern}, KnownPattern{WordRule::kQwen, kQwenPattern}};

/// kSteps where "pattern" in `split` is not known.
WordRule known_words(const Json& split) {
  const Json pattern = split.value("pattern", Json());
  if (!pattern.is_object() || !pattern.contains("Regex")) return WordRule::kSteps;
  const auto* const found = std::ranges::find_if(
      kKnownPatterns, [&](const KnownPattern& known) { return pattern["Regex"] == known.pattern; });
  return found == kKnownPatterns.end() ? WordRule::kSteps : found->words;
}

Matcher matcher_of(const TokenizerFile& file, const Json& split) {
  switch (known_words(split)) {
    case WordRule::kGpt2:
      return match_words(Gpt2Words());
    case WordRule::kCl100k:
      return match_words(Cl100kWords(3));
    case WordRule::kQwen:
      return match_words(Cl100kWords(1));
    default:
      return file.matcher(split, "Split");
  }
}

// --- normalizer ---

BertSteps bert_steps(const TokenizerFile& file, const Json& step) {
  BertSteps steps = {.clean_text = file.flag(step, "clean_text", true),
                     .spaces_around_chinese = file.flag(step, "handle_chinese_chars", true),
                     .lowercase = file.flag(step, "lowercase", true)};
  steps.strip_accents = file.flag(step, "strip_accents", steps.lowercase);
  return steps;
}

NormalizerStep precompiled_step(const TokenizerFile& file, const Json& step) {
  const auto table = from_base64(file.text(step, "Precompiled", "precompiled_charsmap"));
  if (!table) file.fail("Precompiled: \"precompiled_charsmap\" is not base64");
  try {
    return precompiled(*table);
  } catch (const InputError& error) {
    file.fail(fmt::format("Precompiled: {}", error.what()));
  }
}

NormalizerStep normalizer_step(const TokenizerFile& file, const Json& step) {
  const std::string type = TokenizerFile::type_of(step);
  if (type == "NFC") return to_form(text::NormalForm::kNfc);
  if (type == "NFD") return to_form(text::NormalForm::kNfd);
  if (type == "NFKC") return to_form(text::NormalForm::kNfkc);
  if (type == "NFKD") return to_form(text::NormalForm::kNfkd);
  if (type == "Lowercase") return to_lower();
  if (type == "StripAccents") return strip_accents();
  if (type == "Nmt") return nmt();
  if (type == "BertNormalizer") return bert(bert_steps(file, step));
  if (type == "Precompiled") return precompiled_step(file, step);
  if (type == "Prepend") return prepend(file.text(step, "Prepend", "prepend"));
  if (type == "Strip") {
    return strip(file.flag(step, "strip_left", true), file.flag(step, "strip_right", true));
  }
  if (type == "Replace") {
    return replace(file.matcher(step, "Replace"), file.text(step, "Replace", "content"));
  }
  file.unsupported("normalizer " + type);
}

bool is_mark_prefix(const Json& step) {
  return TokenizerFile::type_of(step) == "Prepend" && step.value("prepend", Json()) == kMark;
}

/// Takes the steps that spell spaces as marks from the end of `steps`.
Marks take_marks(const TokenizerFile& file, std::vector<Json>& steps) {
  Marks marks;
  while (!steps.empty()) {
    const Json& last = steps.back();
    if (TokenizerFile::type_of(last) == "Replace" && file.replaces(last, " ", kMark)) {
      marks.are_used = true;
    } else if (is_mark_prefix(last) && !marks.prepends) {
      marks.prepends = true;
    } else {
      break;
    }
    steps.pop_back();
  }
  return marks;
}

// --- pre-tokenizer ---

SplitBehavior behavior_of(const TokenizerFile& file, const Json& step, const std::string& type) {
  const std::string name = file.text(step, type.c_str(), "behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  file.unsupported(fmt::format("pre_tokenizer {} with behavior {}", type, name));
}

struct MetaspaceRule {
  std::string mark;
  PrefixScheme prefix;
  bool splits;
};

MetaspaceRule metaspace_of(const TokenizerFile& file, const Json& step) {
  const std::string scheme =
      step.contains("prepend_scheme") ? file.text(step, "Metaspace", "prepend_scheme") : "always";
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    file.fail("Metaspace: prepend_scheme is not always, first or never");
  }
  if (!file.flag(step, "add_prefix_space", true) && scheme != "never") {
    file.fail("Metaspace: add_prefix_space = false contradicts prepend_scheme " + scheme);
  }
  return {.mark = file.character(step, "Metaspace", "replacement"),
          .prefix = scheme == "always"  ? PrefixScheme::kAlways
                    : scheme == "first" ? PrefixScheme::kFirst
                                        : PrefixScheme::kNever,
          .splits = file.flag(step, "split", true)};
}

/// The library's numbers are of Unicode 17 here.
bool is_number(uint32_t code) {
  return text::is_number(code) || (code >= 0x11de0 && code <= 0x11de9) ||
         (code >= 0x16ff4 && code <= 0x16ff6);
}

void add_split(const TokenizerFile& file, const Json& step, PreTokenizer& words) {
  const SplitBehavior behavior = behavior_of(file, step, "Split");
  const bool invert = file.flag(step, "invert", false);
  const bool matches_all = known_words(step) != WordRule::kSteps;
  words.add(split_by(matcher_of(file, step), behavior, invert),
            behavior != SplitBehavior::kRemoved || (matches_all && invert));
}

void add_byte_level(const TokenizerFile& file, const Json& step, PreTokenizer& words) {
  if (file.flag(step, "add_prefix_space", true)) words.add(with_prefix_space(), false);
  if (file.flag(step, "use_regex", true)) {
    words.add(split_by(match_words(Gpt2Words()), SplitBehavior::kIsolated), true);
  }
}

void add_step(const TokenizerFile& file, const Json& step, PreTokenizer& words) {
  using enum SplitBehavior;
  const std::string type = TokenizerFile::type_of(step);
  if (type == "Split") {
    add_split(file, step, words);
  } else if (type == "ByteLevel") {
    add_byte_level(file, step, words);
  } else if (type == "Metaspace") {
    const MetaspaceRule rule = metaspace_of(file, step);
    words.add(mark_spaces(rule.mark, rule.prefix, rule.splits), false);
  } else if (type == "Digits") {
    const bool each = file.flag(step, "individual_digits", false);
    words.add(split_by(match_characters(is_number), each ? kIsolated : kContiguous), true);
  } else if (type == "Punctuation") {
    const SplitBehavior behavior =
        step.contains("behavior") ? behavior_of(file, step, type) : kIsolated;
    words.add(split_by(match_characters(text::is_punctuation), behavior), behavior != kRemoved);
  } else if (type == "Whitespace") {
    words.add(split_by(match_runs(), kRemoved, /*invert=*/true), false);
  } else if (type == "WhitespaceSplit") {
    words.add(split_by(match_characters(text::is_space), kRemoved), false);
  } else if (type == "BertPreTokenizer") {
    words.add(split_by(match_characters(text::is_space), kRemoved), false);
    words.add(split_by(match_characters(text::is_punctuation), kIsolated), true);
  } else if (type == "CharDelimiterSplit") {
    words.add(
        split_by(match_string(file.character(step, "CharDelimiterSplit", "delimiter")), kRemoved),
        false);
  } else {
    file.unsupported("pre_tokenizer " + type);
  }
}

/// The way by hand for these steps, if there is one. They end in ByteLevel.
WordRule words_by_hand(const TokenizerFile& file, const std::vector<Json>& steps) {
  const Json& byte_level = steps.back();
  if (file.flag(byte_level, "add_prefix_space", true)) return WordRule::kSteps;
  const bool uses_regex = file.flag(byte_level, "use_regex", true);
  if (steps.size() == 1) return uses_regex ? WordRule::kGpt2 : WordRule::kSteps;
  const Json& split = steps.front();
  if (steps.size() > 2 || uses_regex || TokenizerFile::type_of(split) != "Split") {
    return WordRule::kSteps;
  }
  // Words are what the pattern matches, or what lies between matches that vanish; all of a text is
  // matched, so the two are one.
  const SplitBehavior behavior = behavior_of(file, split, "Split");
  const bool invert = file.flag(split, "invert", false);
  const bool keeps_matches = (behavior == SplitBehavior::kIsolated && !invert) ||
                             (behavior == SplitBehavior::kRemoved && invert);
  return keeps_matches ? known_words(split) : WordRule::kSteps;
}

/// Where spaces have become marks: there is no pre-tokenizer, or it splits by a space.
bool cuts_nothing(const TokenizerFile& file, const std::vector<Json>& steps) {
  if (steps.empty()) return true;
  return steps.size() == 1 && TokenizerFile::type_of(steps[0]) == "Split" &&
         !file.flag(steps[0], "invert", false) &&
         steps[0].value("pattern", Json()) == Json{{"String", " "}};
}

/// What is first the library tells by places in the text as it came, which some steps move.
void check_first(const TokenizerFile& file, const std::vector<Json>& normalizer,
                 const std::vector<Json>& steps) {
  const bool asks = std::ranges::any_of(steps, [&](const Json& step) {
    return TokenizerFile::type_of(step) == "Metaspace" &&
           metaspace_of(file, step).prefix == PrefixScheme::kFirst;
  });
  for (const Json& step : normalizer) {
    const std::string type = TokenizerFile::type_of(step);
    const bool takes_away = type != "NFC" && type != "NFD" && type != "NFKC" && type != "NFKD" &&
                            type != "Lowercase" && type != "Prepend";
    if (asks && (takes_away || (steps.size() > 1 && type != "NFC"))) {
      file.unsupported("Metaspace with prepend_scheme first behind the normalizer " + type);
    }
  }
}

}  // namespace

void read_words(const TokenizerFile& file, TokenizerTables& tables) {
  std::vector<Json> normalizer = file.steps(file.part("normalizer"), "normalizers");
  const std::vector<Json> steps = file.steps(file.part("pre_tokenizer"), "pretokenizers");
  const bool is_metaspace = steps.size() == 1 && TokenizerFile::type_of(steps[0]) == "Metaspace" &&
                            metaspace_of(file, steps[0]).mark == kMark;
  tables.is_byte_level = !steps.empty() && TokenizerFile::type_of(steps.back()) == "ByteLevel";
  if (tables.is_byte_level) tables.words = words_by_hand(file, steps);

  std::vector<Json> before_marks = normalizer;
  Marks marks = take_marks(file, before_marks);
  if (!marks.are_used) {
    marks = {};
    before_marks = normalizer;
  }
  check_first(file, before_marks, steps);
  const bool may_join = file.model_type() == "BPE" && !file.has_affixes();
  if (may_join && (is_metaspace || (marks.are_used && cuts_nothing(file, steps)))) {
    tables.words = WordRule::kJoined;
    tables.marks = marks;
    normalizer = before_marks;
  }
  if (may_join && is_metaspace) {
    const MetaspaceRule rule = metaspace_of(file, steps[0]);
    tables.metaspace = {.is_used = true, .prefix = rule.prefix, .splits = rule.splits};
  }
  for (const Json& step : normalizer) tables.normalizer.add(normalizer_step(file, step));
  if (tables.words != WordRule::kSteps) return;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i + 1 < steps.size() && TokenizerFile::type_of(steps[i]) == "ByteLevel") {
      file.unsupported("pre_tokenizer ByteLevel with others behind it");
    }
    add_step(file, steps[i], tables.pre_tokenizer);
  }
}

}  // namespace atl::tokenizer
