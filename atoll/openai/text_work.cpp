#include "atoll/openai/text_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/base/random.h"
#include "atoll/openai/response_shape.h"
#include "atoll/openai/tool_prompt.h"

namespace atl::openai {
namespace {

/// What the request asked for, at most what there is room for behind the prompt.
int64_t tokens_to_make(const RequestOptions& options, int64_t num_prompt, const ServedModel& model,
                       const std::string& field) {
  const int64_t context = model.generator->context();
  const int64_t wanted = options.max_tokens.value_or(context);
  if (wanted > context) {
    refuse("max_tokens",
           fmt::format("'max_tokens' is {}; the model's context has {} tokens", wanted, context));
  }
  const int64_t room = context - num_prompt;
  if (room < std::min<int64_t>(wanted, 1)) {
    refuse(field,
           fmt::format("'{}' has {} tokens; the model's context has {}, of which the answer needs "
                       "at least one",
                       field, num_prompt, context),
           "context_length_exceeded");
  }
  return std::min(wanted, room);
}

void check_bias(const RequestOptions& options, const ServedModel& model) {
  const int64_t size = model.generator->vocab_size();
  for (const auto& [id, added] : options.logit_bias) {
    if (id >= size) {
      refuse("logit_bias",
             fmt::format("'logit_bias' has the id {}; the model's ids are below {}", id, size));
    }
  }
}

/// One that JavaScript, whose numbers have 53 bits, can say again.
uint64_t some_seed() { return number_in<uint64_t>(random_name(), 16).value_or(0) >> 11; }

}  // namespace

TextWork work_of(const RequestOptions& options, std::vector<PromptIds> prompts,
                 const ServedModel& model, const std::string& field) {
  check_bias(options, model);
  if (options.lossy_kv && std::isfinite(*options.lossy_kv) && !model.generator->may_round()) {
    refuse("lossy_kv", "'lossy_kv': keys and values of this model are used to the bit alone here");
  }
  TextWork work{.choices_per_prompt = static_cast<size_t>(options.n),
                .stops = options.stops,
                .stream = options.stream};
  const uint64_t seed = options.seed ? static_cast<uint64_t>(*options.seed) : some_seed();
  for (const PromptIds& prompt : prompts) {
    decoding::GenerationRequest text{
        .prompt = prompt.ids,
        .max_tokens = tokens_to_make(options, std::ssize(prompt.ids), model, field),
        .ends = model.ends,
        .sampler = options.sampler,
        .logit_bias = options.logit_bias,
        .round_after = options.lossy_kv};
    // A prompt's choices differ; each is what it would be if the prompt were alone.
    for (uint64_t i = 0; i < work.choices_per_prompt; ++i) {
      text.sampler.seed = seed + i;
      work.texts.push_back(text);
    }
  }
  work.prompts = std::move(prompts);
  return work;
}

TextWork work_of(const CompletionRequest& request, const ServedModel& model) {
  std::vector<PromptIds> prompts;
  for (const Prompt& prompt : request.prompts) {
    prompts.push_back(
        encode(prompt, *model.tokenizer, model.generator->vocab_size(), model.ends, "prompt"));
  }
  TextWork work = work_of(request.options, std::move(prompts), model, "prompt");
  const Grammars::Masks masks = model.grammars->find(request.structure, grammar::ToolForm::kHermes);
  for (decoding::GenerationRequest& text : work.texts) {
    text.grammar = masks;
    text.top_logprobs = request.logprobs;
    text.scores_prompt = request.echo && request.logprobs;
  }
  work.echo = request.echo;
  work.shows_end = request.logprobs.has_value();
  work.shape = std::make_unique<CompletionShape>(request, *model.tokenizer);
  work.id = "cmpl-" + random_name();
  return work;
}

namespace {

/// Whether it has anything that templates for texts alone do not say.
bool has_tools(const tokenizer::Chat& chat) {
  return !chat.tools.is_null() || std::ranges::any_of(chat.messages, [](const Json& message) {
    return message["role"] == "tool" || message.contains("tool_calls");
  });
}

}  // namespace

PromptIds chat_prompt(const tokenizer::Chat& chat, const ServedModel& model,
                      const std::string& field) {
  if (model.chat_template == nullptr) {
    refuse(field, "the model has no chat template: ask /v1/completions", "no_chat_template");
  }
  const bool needs_words = has_tools(chat) && !knows_tools(model.chat_template->source());
  try {
    const auto ids = tokenizer::ChatTemplate::encode(
        *model.tokenizer,
        model.chat_template->render(needs_words ? with_tools_in_words(chat) : chat));
    if (ids.empty()) refuse(field, "the chat template makes no text of the messages");
    return {.ids = {ids.begin(), ids.end()}};
  } catch (const InputError& error) {
    refuse(field, fmt::format("'{}': {}", field, error.what()));
  }
}

namespace {

/// How the model calls tools; nothing where the request has none that it may call.
std::optional<grammar::ToolForm> tool_form_of(const Structure& structure,
                                              const ServedModel& model) {
  if (structure.kind != Structure::Kind::kTools || model.chat_template == nullptr) return {};
  const auto form = tool_form(model.chat_template->source());
  if (form) return form;
  refuse("tools",
         "'tools' cannot be used: the model's chat template has them called in a form "
         "that is not supported",
         "unsupported");
}

/// Of what holds a chat.
TextWork chat_work(const auto& request, std::optional<grammar::ToolForm> tools,
                   const ServedModel& model, const char* field) {
  TextWork work = work_of(request.options, {chat_prompt(request.chat, model, field)}, model, field);
  const Grammars::Masks masks =
      model.grammars->find(request.structure, tools.value_or(grammar::ToolForm::kHermes));
  for (decoding::GenerationRequest& text : work.texts) {
    text.grammar = masks;
    text.top_logprobs = request.top_logprobs;
  }
  // An answer that can only be calls has no text that stops could end, but a form that nobody sees.
  if (tools && request.structure.tool_choice == grammar::ToolChoice::kRequired) work.stops.clear();
  return work;
}

}  // namespace

TextWork work_of(const ChatRequest& request, const ServedModel& model) {
  const auto tools = tool_form_of(request.structure, model);
  TextWork work = chat_work(request, tools, model, "messages");
  work.shape = std::make_unique<ChatShape>(request, tools, *model.tokenizer);
  work.id = "chatcmpl-" + random_name();
  return work;
}

TextWork work_of(const ResponseRequest& request, const ServedModel& model) {
  const auto tools = tool_form_of(request.structure, model);
  TextWork work = chat_work(request, tools, model, "input");
  work.shape = std::make_unique<ResponseShape>(request, tools, *model.tokenizer);
  work.id = "resp_" + random_name();
  return work;
}

}  // namespace atl::openai
