#pragma once
// Calls of tools as chats give them back, whole or as a stream. Pure.
#include <string>
#include <vector>

#include "atoll/grammar/tool_reader.h"
#include "atoll/openai/answer.h"

namespace atl::openai {

/// What a call is referred to by: nine letters and digits, as Mistral's templates ask for. It
/// follows from its answer and place.
std::string call_id(const Answer& answer, size_t choice, size_t call);

/// "tool_calls", where the model has ended its calls; else as name_of() has it.
std::string finish_name(decoding::FinishReason reason, bool has_calls);

/// {"role", "content", "refusal"} and "tool_calls".
Json message_with_calls(const Answer& answer, size_t choice, const grammar::ToolAnswer& said);

/// One choice of a stream.
class ToolDeltas {
 public:
  explicit ToolDeltas(grammar::ToolForm form) : reader_(form) {}

  /// What "delta" is in each of the next events.
  std::vector<Json> add(const Answer& answer, size_t choice, const std::string& text);
  std::vector<Json> finish(const Answer& answer, size_t choice);
  bool has_calls() const { return num_calls_ > 0; }

 private:
  std::vector<Json> deltas_of(const Answer& answer, size_t choice,
                              const std::vector<grammar::ToolEvent>& events);
  grammar::ToolReader reader_;
  size_t num_calls_ = 0;
};

}  // namespace atl::openai
