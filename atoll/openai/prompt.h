#pragma once
// A prompt as requests write it, and as the model reads it. Pure.
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "atoll/openai/fields.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::openai {

/// A text or its ids.
using Prompt = std::variant<std::string, std::vector<int64_t>>;

/// A text, a list of texts, a list of ids or a list of lists of ids. Throws ApiError naming the
/// field, also where there are more than `most`.
std::vector<Prompt> read_prompts(const Json& json, const std::string& field, int64_t most);

/// What the model reads.
struct PromptIds {
  std::vector<int64_t> ids;
  std::string text;         // As an answer repeats it.
  size_t num_leading = 0;   // Ids in front that are no part of the text.
  size_t num_trailing = 0;  // And behind.
};

/// With the tokens around it that the tokenizer asks for, where it is a text. An empty text is that
/// of `begin`, the end of the document before; ids are checked against `vocab_size`. Throws
/// ApiError naming the field.
PromptIds encode(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer, int64_t vocab_size,
                 const std::vector<int64_t>& begin, const std::string& field);

/// For each id, how many bytes of the text it stands for: their sum is the text's size.
std::vector<std::string> bytes_of_ids(const PromptIds& prompt,
                                      const tokenizer::Tokenizer& tokenizer);

}  // namespace atl::openai
