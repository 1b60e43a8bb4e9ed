// tekken.json and tiktoken's files -> tokenizer.json: byte-level tokens whose merges are those of
// the lowest rank.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "atoll/base/base64.h"
#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/tokenizer/byte_alphabet.h"
#include "atoll/tokenizer/other_formats.h"
#include "atoll/tokenizer/tokenizer_file.h"
#include "atoll/tokenizer/word_patterns.h"

namespace atl::tokenizer {
namespace {

struct RankFile {
  std::string name;
  std::string pattern;
  std::vector<std::string> tokens;               // By rank: their bytes.
  size_t first_id = 0;                           // Of the token with rank 0.
  std::map<size_t, std::string> special_tokens;  // By id.
  bool is_nfc = false;
  std::string begins;  // The token before each text, or none.
};

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw InputError(fmt::format("'{}': {}", name, what));
}

std::string json_of(const RankFile& file) {
  ByteLevelBpe out = {.pattern = file.pattern, .is_nfc = file.is_nfc, .takes_whole_words = true};
  std::vector<std::string> tokens;
  for (const std::string& bytes : file.tokens) {
    const size_t id = file.first_id + tokens.size();
    tokens.push_back(spell_bytes(bytes));
    if (!out.vocabulary.emplace(tokens.back(), id).second) {
      fail(file.name, fmt::format("two ranks have the token \"{}\"", tokens.back()));
    }
  }
  for (const auto& [id, content] : file.special_tokens) {
    out.added_tokens.push_back(added_token(content, id, /*is_special=*/true));
    if (!out.vocabulary.emplace(content, id).second) {
      fail(file.name, fmt::format("\"{}\" is a special token and another", content));
    }
    if (content == file.begins) out.post_processor = token_before(content, id);
  }
  out.merges = merges_of(tokens, {tokens.begin(), tokens.end()}, file.name);
  return json_of(out);
}

// --- tekken ---

/// The special tokens of files that name none (up to version 7).
constexpr std::array kFirstTekkenSpecials = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

class Tekken {
 public:
  Tekken(const Json& file, std::string name) : file_(file) { out_.name = std::move(name); }

  std::string json() {
    const Json& config = field(file_, "config");
    out_.pattern = text(config, "pattern");
    out_.first_id = count(config, "default_num_special_tokens");
    out_.begins = "<s>";
    read_specials();
    const size_t size = count(config, "default_vocab_size");
    const size_t num_tokens = size - std::min(size, out_.first_id);
    read_tokens(num_tokens);
    return json_of(out_);
  }

 private:
  const Json& field(const Json& object, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      fail(out_.name, fmt::format("lacks \"{}\"", key));
    }
    return object[key];
  }
  std::string text(const Json& object, const char* key) const {
    const Json& value = field(object, key);
    if (!value.is_string()) fail(out_.name, fmt::format("\"{}\" is no text", key));
    return value.get<std::string>();
  }
  size_t count(const Json& object, const char* key) const {
    const Json& value = field(object, key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > TokenizerFile::kMaxIds) {
      fail(out_.name, fmt::format("\"{}\" is no count up to {}", key, TokenizerFile::kMaxIds));
    }
    return value.get<size_t>();
  }

  void read_specials() {
    for (size_t id = 0; id < out_.first_id; ++id) {
      out_.special_tokens[id] = fmt::format("<SPECIAL_{}>", id);
    }
    const bool names_them = file_.contains("special_tokens") && file_["special_tokens"].is_array();
    if (!names_them) {
      for (size_t id = 0; id < std::min(kFirstTekkenSpecials.size(), out_.first_id); ++id) {
        out_.special_tokens[id] = kFirstTekkenSpecials[id];
      }
      return;
    }
    for (const Json& token : file_["special_tokens"]) {
      const size_t id = count(token, "rank");
      if (id >= out_.first_id)
        fail(out_.name, fmt::format("special token {} is none of {}", id, out_.first_id));
      out_.special_tokens[id] = text(token, "token_str");
    }
  }

  /// The file has more tokens than the vocabulary takes.
  void read_tokens(size_t num_tokens) {
    const Json& vocabulary = field(file_, "vocab");
    if (!vocabulary.is_array() || vocabulary.size() < num_tokens) {
      fail(out_.name,
           fmt::format("\"vocab\" has not the {} tokens of \"default_vocab_size\"", num_tokens));
    }
    for (size_t rank = 0; rank < num_tokens; ++rank) {
      const Json& token = vocabulary[rank];
      const auto bytes = from_base64(text(token, "token_bytes"));
      if (count(token, "rank") != rank || !bytes || bytes->empty()) {
        fail(out_.name, fmt::format("\"vocab\" entry {} is not the token of that rank", rank));
      }
      out_.tokens.push_back(*bytes);
    }
  }

  const Json& file_;
  RankFile out_;
};

// --- tiktoken ---

constexpr size_t kFirstQwenExtra = 151646;

/// Encodings whose files people have; ids of special tokens that are not named are reserved.
struct KnownRanks {
  size_t num_tokens;
  std::string_view name;
  std::string_view pattern;
  std::vector<std::pair<size_t, std::string_view>> special_tokens;
  size_t num_ids;
  std::string_view begins;
};

const std::vector<KnownRanks>& known_ranks() {
  static const std::vector<KnownRanks> kKnown = {
      {50256, "GPT-2", kGpt2Pattern, {{50256, "<|endoftext|>"}}, 50257, ""},
      {100256,
       "cl100k_base",
       kCl100kPattern,
       {{100257, "<|endoftext|>"},
        {100258, "<|fim_prefix|>"},
        {100259, "<|fim_middle|>"},
        {100260, "<|fim_suffix|>"},
        {100276, "<|endofprompt|>"}},
       100277,
       ""},
      {128000,
       "Llama 3",
       kCl100kPattern,
       {{128000, "<|begin_of_text|>"},
        {128001, "<|end_of_text|>"},
        {128006, "<|start_header_id|>"},
        {128007, "<|end_header_id|>"},
        {128009, "<|eot_id|>"}},
       128256,
       "<|begin_of_text|>"},
      {151643,
       "Qwen",
       kQwenPattern,
       {{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}},
       151851,
       ""},
      {199998,
       "o200k_base",
       kO200kPattern,
       {{199999, "<|endoftext|>"}, {200018, "<|endofprompt|>"}},
       200019,
       ""}};
  return kKnown;
}

/// "TOKEN RANK" -> its bytes and rank.
std::optional<std::pair<std::string, size_t>> read_rank(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return {};
  const auto bytes = from_base64(line.substr(0, space));
  const auto rank = number_in<uint32_t>(line.substr(space + 1));
  if (!bytes || bytes->empty() || !rank) return {};
  return std::pair(*bytes, size_t{*rank});
}

}  // namespace

bool is_tekken(const Json& file) {
  return file.is_object() && !file.contains("model") && file.contains("config") &&
         file.contains("vocab");
}

std::string json_of_tekken(const Json& file, const std::string& name) {
  return Tekken(file, name).json();
}

bool is_tiktoken(std::string_view file) {
  return read_rank(file.substr(0, file.find('\n'))).has_value();
}

std::string json_of_tiktoken(std::string_view file, const std::string& name) {
  RankFile out{.name = name};
  while (!file.empty()) {
    const std::string_view line = file.substr(0, file.find('\n'));
    file.remove_prefix(std::min(line.size() + 1, file.size()));
    if (line.empty()) continue;
    const auto token = read_rank(line);
    if (!token || token->second != out.tokens.size()) {
      fail(name, fmt::format("line {} is not the token with rank {}", out.tokens.size() + 1,
                             out.tokens.size()));
    }
    out.tokens.push_back(token->first);
  }
  const auto known = std::ranges::find(known_ranks(), out.tokens.size(), &KnownRanks::num_tokens);
  if (known == known_ranks().end()) {
    std::string all;
    for (const KnownRanks& one : known_ranks()) {
      all += fmt::format("{}{} ({})", all.empty() ? "" : ", ", one.num_tokens, one.name);
    }
    fail(name,
         fmt::format("a tiktoken file says neither how words are cut nor what special tokens there "
                     "are, and of one with {} tokens it is not known; known are those with {}: use "
                     "the model's tokenizer.json",
                     out.tokens.size(), all));
  }
  out.pattern = known->pattern;
  out.begins = known->begins;
  for (size_t id = out.tokens.size(); id < known->num_ids; ++id) {
    out.special_tokens[id] = fmt::format("<|reserved_{}|>", id);
  }
  for (const auto& [id, content] : known->special_tokens) out.special_tokens[id] = content;
  if (known->name == "Qwen") {
    out.is_nfc = true;
    for (size_t i = 0; kFirstQwenExtra + i < known->num_ids; ++i) {
      out.special_tokens[kFirstQwenExtra + i] = fmt::format("<|extra_{}|>", i);
    }
  }
  return json_of(out);
}

}  // namespace atl::tokenizer
