#pragma once
// Tokenizers in other formats than tokenizer.json, written as one: what they are trained with goes
// into checkpoints, and whoever reads those needs one format only. Pure; `name` begins messages of
// InputError.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "atoll/codec/gguf_file.h"

namespace atl::tokenizer {

/// SentencePiece's tokenizer.model (Kudo and Richardson 2018): BPE or Unigram.
std::string json_of_sentence_piece(std::string_view model, const std::string& name);

/// Mistral's tekken.json: tokens by rank, behind special ones.
bool is_tekken(const nlohmann::json& file);
std::string json_of_tekken(const nlohmann::json& file, const std::string& name);

/// tiktoken's files: a line is a token in base64 and its rank. Words and special tokens stand in
/// the programs that use them, so a file is known by how many tokens it has, or refused.
bool is_tiktoken(std::string_view file);
std::string json_of_tiktoken(std::string_view file, const std::string& name);

/// The tokenizer in a GGUF file, and what its tokenizer_config.json would be: special tokens by
/// what they are for, chat template.
std::string json_of_gguf(const codec::GgufFile& file);
std::string config_of_gguf(const codec::GgufFile& file);

/// "merges" of a tokenizer.json: each way to make a token of two that are `mergeable`. The token
/// that comes first in `tokens` (UTF-8) is made first, and of one token's ways that with the longer
/// left side: the formats above take the leftmost of what makes the same token.
nlohmann::json merges_of(const std::vector<std::string>& tokens,
                         const std::unordered_set<std::string>& mergeable, const std::string& name);

/// The "model" of BPE; what is not given is off.
nlohmann::json bpe_model(nlohmann::json vocabulary, nlohmann::json merges);

/// Byte-level BPE whose words are cut by a pattern.
struct ByteLevelBpe {
  nlohmann::json vocabulary = nlohmann::json::object();
  nlohmann::json merges;
  nlohmann::json added_tokens = nlohmann::json::array();
  std::string pattern;
  bool parts_digits = false;       // Before the pattern.
  bool is_nfc = false;             // Text is normalised.
  bool takes_whole_words = false;  // A word that is a token is taken as it is.
  nlohmann::json post_processor;   // Null: none.
};
std::string json_of(const ByteLevelBpe& tokenizer);

/// An entry of "added_tokens".
nlohmann::json added_token(const std::string& content, size_t id, bool is_special,
                           bool is_normalized = false);

/// The "post_processor" that puts a token before each text.
nlohmann::json token_before(const std::string& token, size_t id);

}  // namespace atl::tokenizer
