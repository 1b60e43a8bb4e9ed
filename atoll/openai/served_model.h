#pragma once
// A model as the API has it: who makes its tokens, and how texts become them.
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/decoding/generator.h"
#include "atoll/openai/grammars.h"
#include "atoll/tokenizer/chat_template.h"
#include "atoll/tokenizer/tokenizer.h"

namespace atl::openai {

struct ServedModel {
  std::string name;  // As requests call it.
  std::shared_ptr<decoding::Generator> generator;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::shared_ptr<const tokenizer::ChatTemplate> chat_template;  // Null: chats are refused.
  std::vector<int64_t> ends;  // Ids that end a text; the first begins an empty one.
  /// For /tokenizer_info: "bos_token", "eos_token" and so on (tokenizer::special_tokens_of), and
  /// the template's text; empty: none.
  nlohmann::ordered_json special_tokens = nlohmann::ordered_json::object();
  std::string chat_template_text;
  std::shared_ptr<Grammars> grammars;  // The gateway's: of this model's answers.
};

}  // namespace atl::openai
