#include "atoll/openai/tokens.h"

#include <fmt/format.h>

#include <vector>

#include "atoll/base/error.h"
#include "atoll/openai/chat.h"
#include "atoll/openai/request_options.h"
#include "atoll/openai/text_work.h"

namespace atl::openai {

Json tokenize(Fields& fields, const ServedModel& model) {
  std::vector<tokenizer::TokenId> ids;
  const auto prompt = fields.text("prompt");
  const Json* messages = fields.find("messages");
  const bool add_generation_prompt = fields.flag("add_generation_prompt", true);
  const bool add_special_tokens = fields.flag("add_special_tokens", prompt.has_value());
  fields.refuse_unknown();
  if (prompt.has_value() == (messages != nullptr)) {
    refuse("prompt", "one of 'prompt' and 'messages' is needed");
  }
  if (prompt) {
    ids = model.tokenizer->encode(*prompt, tokenizer::SpecialText::kToken);
  } else {
    const std::vector<int64_t> made = chat_prompt({.messages = read_messages(*messages, "messages"),
                                                   .add_generation_prompt = add_generation_prompt},
                                                  model, "messages")
                                          .ids;
    ids.assign(made.begin(), made.end());
  }
  if (add_special_tokens) ids = model.tokenizer->with_special_tokens(std::move(ids));
  return {{"tokens", ids}, {"count", ids.size()}, {"max_model_len", model.generator->context()}};
}

Json detokenize(Fields& fields, const ServedModel& model) {
  const std::vector<int64_t> wide = read_ids(fields.required("tokens"), "tokens");
  fields.refuse_unknown();
  const std::vector<tokenizer::TokenId> ids(wide.begin(), wide.end());
  try {
    return {{"prompt", model.tokenizer->decode(ids)}};
  } catch (const InputError& error) {
    refuse("tokens", fmt::format("'tokens': {}", error.what()));
  }
}

Json tokenizer_info(const ServedModel& model) {
  Json info = model.special_tokens;
  for (const char* name : {"bos_token", "eos_token", "pad_token"}) {
    if (!info.contains(name)) info[name] = nullptr;
  }
  // Evaluation programs take this token to begin a text with.
  if (info["eos_token"].is_null() && !model.ends.empty()) {
    info["eos_token"] = std::string(model.tokenizer->bytes_or_none(model.ends[0]));
  }
  info["vocab_size"] = model.tokenizer->vocab_size();
  info["model_max_length"] = model.generator->context();
  info["chat_template"] =
      model.chat_template_text.empty() ? Json() : Json(model.chat_template_text);
  return info;
}

}  // namespace atl::openai
