#include "atoll/openai/choices_shape.h"

#include <utility>

namespace atl::openai {

Json ChoicesShape::object(const Answer& answer, const char* kind, Json choices) {
  return {{"id", answer.id},       {"object", kind},      {"created", answer.created},
          {"model", answer.model}, {"seed", answer.seed}, {"choices", std::move(choices)}};
}

std::string ChoicesShape::chunk(const Answer& answer, Json choice) const {
  return sse(object(answer, chunk_kind_, Json::array({std::move(choice)})));
}

std::string ChoicesShape::end(const Answer& answer) {
  std::string events;
  if (includes_usage_) {
    Json all = object(answer, chunk_kind_, Json::array());
    all["usage"] = usage_of(answer);
    events = sse(all);
  }
  return events + "data: [DONE]\n\n";
}

}  // namespace atl::openai
