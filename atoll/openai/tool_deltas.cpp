#include "atoll/openai/tool_deltas.h"

#include <fmt/format.h>

#include <utility>

#include "atoll/base/random.h"

namespace atl::openai {

std::string call_id(const Answer& answer, size_t choice, size_t call) {
  const uint64_t number = random_stream(fmt::format("{}/{}/{}", answer.id, choice, call));
  return fmt::format("{:09x}", number & 0xf'ffff'ffff);
}

std::string finish_name(decoding::FinishReason reason, bool has_calls) {
  const bool is_call = has_calls && reason == decoding::FinishReason::kStop;
  return is_call ? "tool_calls" : decoding::name_of(reason);
}

Json message_with_calls(const Answer& answer, size_t choice, const grammar::ToolAnswer& said) {
  const bool is_null = said.text.empty() && !said.calls.empty();
  Json message{
      {"role", "assistant"}, {"content", is_null ? Json() : Json(said.text)}, {"refusal", nullptr}};
  for (size_t i = 0; i < said.calls.size(); ++i) {
    const grammar::ToolCall& call = said.calls[i];
    message["tool_calls"].push_back(
        {{"id", call_id(answer, choice, i)},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

std::vector<Json> ToolDeltas::deltas_of(const Answer& answer, size_t choice,
                                        const std::vector<grammar::ToolEvent>& events) {
  using Kind = grammar::ToolEvent::Kind;
  std::vector<Json> deltas;
  for (const grammar::ToolEvent& event : events) {
    if (event.kind == Kind::kText) {
      deltas.push_back({{"content", event.text}});
      continue;
    }
    Json call;
    if (event.kind == Kind::kCall) {
      call = {{"index", num_calls_},
              {"id", call_id(answer, choice, num_calls_)},
              {"type", "function"},
              {"function", {{"name", event.text}, {"arguments", ""}}}};
      ++num_calls_;
    } else {
      call = {{"index", num_calls_ - 1}, {"function", {{"arguments", event.text}}}};
    }
    deltas.push_back({{"tool_calls", Json::array({std::move(call)})}});
  }
  return deltas;
}

std::vector<Json> ToolDeltas::add(const Answer& answer, size_t choice, const std::string& text) {
  return deltas_of(answer, choice, reader_.add(text));
}

std::vector<Json> ToolDeltas::finish(const Answer& answer, size_t choice) {
  return deltas_of(answer, choice, reader_.finish());
}

}  // namespace atl::openai
