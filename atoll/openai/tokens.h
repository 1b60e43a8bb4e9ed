#pragma once
// /tokenize, /detokenize and /tokenizer_info: what evaluation programs ask beside completions.
// Pure.
#include "atoll/openai/fields.h"
#include "atoll/openai/served_model.h"

namespace atl::openai {

/// {"prompt", "add_special_tokens"} or {"messages", "add_generation_prompt"} to {"tokens", "count",
/// "max_model_len"}. Throws ApiError.
Json tokenize(Fields& fields, const ServedModel& model);
/// {"tokens"} to {"prompt"}.
Json detokenize(Fields& fields, const ServedModel& model);
Json tokenizer_info(const ServedModel& model);

}  // namespace atl::openai
