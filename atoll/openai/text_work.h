#pragma once
// From requests to what a generator is asked for. Pure.
#include <string>
#include <vector>

#include "atoll/openai/answering.h"
#include "atoll/openai/chat.h"
#include "atoll/openai/completion.h"
#include "atoll/openai/response.h"
#include "atoll/openai/served_model.h"

namespace atl::openai {

/// All throw ApiError where the model cannot do it: ids beyond its vocabulary, texts beyond
/// its context, no chat template.
TextWork work_of(const CompletionRequest& request, const ServedModel& model);
TextWork work_of(const ChatRequest& request, const ServedModel& model);
TextWork work_of(const ResponseRequest& request, const ServedModel& model);

/// The ids that a chat's template makes of it. `field` is named where that fails.
PromptIds chat_prompt(const tokenizer::Chat& chat, const ServedModel& model,
                      const std::string& field);

/// A text for each choice of each prompt, and how they end; the shape is the caller's.
TextWork work_of(const RequestOptions& options, std::vector<PromptIds> prompts,
                 const ServedModel& model, const std::string& field);

}  // namespace atl::openai
