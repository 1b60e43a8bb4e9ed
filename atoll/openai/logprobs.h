#pragma once
// Tokens' scores as completions and as chats have them. Pure.
#include <string>
#include <vector>

#include "atoll/openai/growing_text.h"

namespace atl::openai {

/// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: lists of equal length.
Json completion_logprobs(const std::vector<TextToken>& tokens,
                         const tokenizer::Tokenizer& tokenizer);

/// A list of {"token", "logprob", "bytes", "top_logprobs"}.
Json chat_logprobs(const std::vector<TextToken>& tokens, const tokenizer::Tokenizer& tokenizer);

}  // namespace atl::openai
