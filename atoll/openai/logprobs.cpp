#include "atoll/openai/logprobs.h"

#include <algorithm>

#include "atoll/text/utf8.h"

namespace atl::openai {
namespace {

/// JSON has no infinities; a token that cannot come has this, as OpenAI's API writes it.
constexpr double kLeast = -9999;

std::string text_of(const tokenizer::Tokenizer& tokenizer, int64_t id) {
  int64_t num_replaced = 0;
  return text::repair_utf8(tokenizer.bytes_or_none(id), num_replaced);
}

Json bytes_of(const tokenizer::Tokenizer& tokenizer, int64_t id) {
  Json bytes = Json::array();
  for (const char c : tokenizer.bytes_or_none(id)) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

Json chat_entry(const tokenizer::Tokenizer& tokenizer, int64_t id, double logprob) {
  return {{"token", text_of(tokenizer, id)},
          {"logprob", std::max(logprob, kLeast)},
          {"bytes", bytes_of(tokenizer, id)}};
}

}  // namespace

Json completion_logprobs(const std::vector<TextToken>& tokens,
                         const tokenizer::Tokenizer& tokenizer) {
  Json found{{"tokens", Json::array()},
             {"token_logprobs", Json::array()},
             {"top_logprobs", Json::array()},
             {"text_offset", Json::array()}};
  for (const TextToken& token : tokens) {
    found["tokens"].push_back(text_of(tokenizer, token.score.id));
    found["text_offset"].push_back(token.offset);
    if (!token.is_scored) {
      found["token_logprobs"].push_back(nullptr);
      found["top_logprobs"].push_back(nullptr);
      continue;
    }
    const double logprob = std::max(token.score.logprob, kLeast);
    found["token_logprobs"].push_back(logprob);
    // By their texts, which two ids may share: then the likelier one's counts. The token itself is
    // always among them.
    Json top = Json::object();
    for (const auto& [id, other] : token.score.top) {
      top.emplace(text_of(tokenizer, id), std::max(other, kLeast));
    }
    top.emplace(text_of(tokenizer, token.score.id), logprob);
    found["top_logprobs"].push_back(std::move(top));
  }
  return found;
}

Json chat_logprobs(const std::vector<TextToken>& tokens, const tokenizer::Tokenizer& tokenizer) {
  Json found = Json::array();
  for (const TextToken& token : tokens) {
    Json entry = chat_entry(tokenizer, token.score.id, token.score.logprob);
    entry["top_logprobs"] = Json::array();
    for (const auto& [id, other] : token.score.top) {
      entry["top_logprobs"].push_back(chat_entry(tokenizer, id, other));
    }
    found.push_back(std::move(entry));
  }
  return found;
}

}  // namespace atl::openai
