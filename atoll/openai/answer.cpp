#include "atoll/openai/answer.h"

#include <algorithm>

namespace atl::openai {

bool Answer::is_finished() const {
  return std::ranges::all_of(choices, [](const Choice& one) { return one.reason.has_value(); });
}

Json cached_of(const Answer& answer) {
  Json cached = {{"cached_tokens", answer.cached_tokens}};
  if (answer.lossy_tokens > 0) cached["lossy_tokens"] = answer.lossy_tokens;
  return cached;
}

Json usage_of(const Answer& answer) {
  return {{"prompt_tokens", answer.prompt_tokens},
          {"completion_tokens", answer.made_tokens},
          {"total_tokens", answer.prompt_tokens + answer.made_tokens},
          {"prompt_tokens_details", cached_of(answer)}};
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string sse(const Json& data, const std::string& kind) {
  return (kind.empty() ? "" : "event: " + kind + "\n") + "data: " + dump(data) + "\n\n";
}

std::string Shape::failed(const Answer& /*answer*/, const ApiError& error) {
  return sse(json_of(error));
}

}  // namespace atl::openai
