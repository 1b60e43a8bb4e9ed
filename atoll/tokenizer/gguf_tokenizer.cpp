// A GGUF file's tokenizer -> tokenizer.json. Of byte-level ones the file has tokens and merges, and
// how words are cut by a name only; of SentencePiece's it has the pieces.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/base/error.h"
#include "atoll/base/file.h"
#include "atoll/text/utf8.h"
#include "atoll/tokenizer/gguf_words.h"
#include "atoll/tokenizer/other_formats.h"
#include "atoll/tokenizer/sentence_piece.h"

namespace atl::tokenizer {
namespace {

using Json = nlohmann::json;
using codec::GgufFile;
using codec::GgufList;

/// What a token is, as the format numbers it; SentencePiece's numbers.
enum class TokenType { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct Tokens {
  std::vector<std::string> texts;
  std::vector<TokenType> types;
};

Tokens tokens_of(const GgufFile& file) {
  const GgufList* const texts = file.list("tokenizer.ggml.tokens");
  if (texts == nullptr || texts->texts.empty()) file.fail("there is no tokenizer in it");
  const GgufList* const types = file.list("tokenizer.ggml.token_type");
  Tokens tokens;
  for (const std::string_view text : texts->texts) {
    if (text::valid_utf8_prefix(text) != text.size()) file.fail("a token is not UTF-8");
    tokens.texts.emplace_back(text);
  }
  if (types != nullptr && types->numbers.size() != tokens.texts.size()) {
    file.fail("tokenizer.ggml.token_type has another length than the tokens");
  }
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const double type = types == nullptr ? 1 : types->numbers[id];
    if (!(type >= 1 && type <= 6)) file.fail(fmt::format("token {} is of no known type", id));
    tokens.types.push_back(static_cast<TokenType>(static_cast<int>(type)));
  }
  return tokens;
}

/// The token that the file names for something, if it does.
std::optional<size_t> named_token(const GgufFile& file, const char* what, const Tokens& tokens) {
  const auto id = file.whole(fmt::format("tokenizer.ggml.{}_token_id", what));
  if (!id || *id < 0 || *id >= std::ssize(tokens.texts)) return {};
  return static_cast<size_t>(*id);
}

std::optional<size_t> begin_of_text(const GgufFile& file, const Tokens& tokens, bool otherwise) {
  if (!file.flag("tokenizer.ggml.add_bos_token").value_or(otherwise)) return {};
  return named_token(file, "bos", tokens);
}

// --- byte-level ---

const GgufWords& words_of(const GgufFile& file) {
  const std::string name = file.text("tokenizer.ggml.pre").value_or("gpt-2");
  const auto* const found = std::ranges::find(kGgufWords, name, &GgufWords::name);
  if (found != kGgufWords.end()) return *found;
  file.fail(
      fmt::format("how its tokenizer cuts words is not known (tokenizer.ggml.pre is \"{}\"): "
                  "name the model's tokenizer.json with --tokenizer",
                  name));
}

std::string byte_level_json(const GgufFile& file, const Tokens& tokens) {
  const GgufWords& words = words_of(file);
  ByteLevelBpe out = {.pattern = std::string(words.pattern),
                      .parts_digits = words.parts_digits,
                      .is_nfc = words.is_nfc,
                      .takes_whole_words = words.is_of_ranks};
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    const std::string& token = tokens.texts[id];
    if (!out.vocabulary.emplace(token, id).second)
      file.fail(fmt::format("has \"{}\" twice", token));
    const bool is_special =
        tokens.types[id] == TokenType::kControl || tokens.types[id] == TokenType::kUnknown;
    if (is_special || tokens.types[id] == TokenType::kUserDefined) {
      out.added_tokens.push_back(added_token(token, id, is_special));
    }
  }
  const GgufList* const merges = file.list("tokenizer.ggml.merges");
  if (merges == nullptr || !merges->numbers.empty()) file.fail("its tokenizer has no merges");
  for (const std::string_view merge : merges->texts) {
    if (text::valid_utf8_prefix(merge) != merge.size()) file.fail("a merge is not UTF-8");
  }
  out.merges = merges->texts;
  if (const auto id = begin_of_text(file, tokens, words.is_of_ranks)) {
    out.post_processor = token_before(tokens.texts[*id], *id);
  }
  return json_of(out);
}

// --- SentencePiece ---

std::string sentence_piece_json(const GgufFile& file, const Tokens& tokens,
                                sentence_piece::Trainer::ModelType type) {
  const GgufList* const scores = file.list("tokenizer.ggml.scores");
  if (scores == nullptr || scores->numbers.size() != tokens.texts.size()) {
    file.fail("its tokenizer has no scores, or another number of them than of tokens");
  }
  sentence_piece::Model model;
  bool has_bytes = false;
  for (size_t id = 0; id < tokens.texts.size(); ++id) {
    sentence_piece::Piece& piece = *model.add_pieces();
    piece.set_text(tokens.texts[id]);
    if (!(std::abs(scores->numbers[id]) <= std::numeric_limits<float>::max())) {
      file.fail(fmt::format("the score of token {} is no number", id));
    }
    piece.set_score(static_cast<float>(scores->numbers[id]));
    // What pads a vocabulary is nothing that a text has.
    const bool is_unused = tokens.types[id] == TokenType::kUnused;
    piece.set_type(static_cast<sentence_piece::Piece::Type>(
        static_cast<int>(is_unused ? TokenType::kControl : tokens.types[id])));
    has_bytes |= tokens.types[id] == TokenType::kByte;
  }
  const auto begin = begin_of_text(file, tokens, type == sentence_piece::Trainer::BPE);
  model.mutable_trainer()->set_model_type(type);
  model.mutable_trainer()->set_byte_fallback(has_bytes);
  model.mutable_trainer()->set_bos_id(begin ? static_cast<int>(*begin) : -1);
  sentence_piece::Normalizer& normalizer = *model.mutable_normalizer();
  normalizer.set_add_dummy_prefix(file.flag("tokenizer.ggml.add_space_prefix").value_or(true));
  normalizer.set_remove_extra_whitespaces(
      file.flag("tokenizer.ggml.remove_extra_whitespaces").value_or(false));
  if (const GgufList* const table = file.list("tokenizer.ggml.precompiled_charsmap")) {
    std::string bytes;
    for (const double byte : table->numbers) {  // Signed or not.
      if (!(byte >= -128 && byte <= 255)) file.fail("its table of characters is not of bytes");
      bytes += static_cast<char>(static_cast<uint8_t>(static_cast<int>(byte)));
    }
    normalizer.set_precompiled_charsmap(bytes);
  }
  return json_of_sentence_piece(std::move(model), file.path().string());
}

}  // namespace

std::string json_of_gguf(const GgufFile& file) {
  const std::string model = file.text("tokenizer.ggml.model").value_or("none");
  const Tokens tokens = tokens_of(file);
  if (model == "gpt2") return byte_level_json(file, tokens);
  if (model == "llama") return sentence_piece_json(file, tokens, sentence_piece::Trainer::BPE);
  if (model == "t5") return sentence_piece_json(file, tokens, sentence_piece::Trainer::UNIGRAM);
  file.fail(
      fmt::format("its tokenizer is of kind \"{}\" (tokenizer.ggml.model), which is not "
                  "supported: name the model's tokenizer.json with --tokenizer",
                  model));
}

std::string config_of_gguf(const GgufFile& file) {
  const bool has_tokens = file.list("tokenizer.ggml.tokens") != nullptr;
  const Tokens tokens = has_tokens ? tokens_of(file) : Tokens();
  // Else transformers takes the family's own class, whatever the tokenizer is.
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::pair<const char*, const char*> kNames[] = {{"bos", "bos_token"},
                                                        {"eos", "eos_token"},
                                                        {"unknown", "unk_token"},
                                                        {"padding", "pad_token"}};
  for (const auto& [what, name] : kNames) {
    if (const auto id = named_token(file, what, tokens)) config[name] = tokens.texts[*id];
  }
  if (const auto source = file.text("tokenizer.chat_template")) {
    config["chat_template"] = *source;
    if (const auto other = file.text("tokenizer.chat_template.tool_use")) {
      config["chat_template"] = {{{"name", "default"}, {"template", *source}},
                                 {{"name", "tool_use"}, {"template", *other}}};
    }
  }
  return config.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<std::string> tokenizer_text(const std::filesystem::path& model,
                                          const std::string& name) {
  if (!GgufFile::is_one(model)) {
    return std::filesystem::exists(model / name) ? std::optional(read_file(model / name))
                                                 : std::nullopt;
  }
  if (name == "tokenizer_config.json") return config_of_gguf(GgufFile(model));
  return {};
}

}  // namespace atl::tokenizer
