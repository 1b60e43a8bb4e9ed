#include "atoll/openai/completion.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/openai/logprobs.h"

namespace atl::openai {

CompletionRequest read_completion(const Json& body, const RequestLimits& limits) {
  constexpr int64_t kTokensByDefault = 16;  // As OpenAI's API has it.
  Fields fields(body);
  CompletionRequest request;
  request.model = fields.required_text("model");
  request.prompts = read_prompts(fields.required("prompt"), "prompt", limits.max_choices);
  request.options = read_options(fields, limits);
  if (request.options.n * std::ssize(request.prompts) > limits.max_choices) {
    refuse("n", fmt::format("{} prompts with 'n' {} are more than {} texts", request.prompts.size(),
                            request.options.n, limits.max_choices));
  }
  request.options.max_tokens = fields.whole("max_tokens", 0, kMaxTokens).value_or(kTokensByDefault);
  request.logprobs = fields.whole("logprobs", 0, limits.max_top_logprobs);
  request.echo = fields.flag("echo", false);
  fields.refuse_if_there("suffix", {""});
  fields.refuse_if_there("best_of", {1, request.options.n});
  request.structure = read_format(fields);
  fields.refuse_unknown();
  return request;
}

Json CompletionShape::choice(size_t index, const std::string& text,
                             const std::vector<TextToken>& tokens,
                             std::optional<decoding::FinishReason> reason) const {
  return {{"index", index},
          {"text", text},
          {"logprobs", has_logprobs() ? completion_logprobs(tokens, tokenizer()) : Json()},
          {"finish_reason", reason ? Json(decoding::name_of(*reason)) : Json()}};
}

Json CompletionShape::whole(const Answer& answer) {
  Json choices = Json::array();
  for (size_t i = 0; i < answer.choices.size(); ++i) {
    const Choice& one = answer.choices[i];
    choices.push_back(choice(i, one.text, one.tokens, one.reason));
  }
  Json all = object(answer, kKind, std::move(choices));
  all["usage"] = usage_of(answer);
  return all;
}

std::string CompletionShape::begin(const Answer& /*answer*/) { return ""; }

std::string CompletionShape::piece(const Answer& answer, size_t index, const Piece& piece) {
  if (is_empty(piece)) return "";
  return chunk(answer, choice(index, piece.text, piece.tokens, {}));
}

std::string CompletionShape::end_of(const Answer& answer, size_t index) {
  return chunk(answer, choice(index, "", {}, answer.choices[index].reason));
}

}  // namespace atl::openai
