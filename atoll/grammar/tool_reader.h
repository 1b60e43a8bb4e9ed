#pragma once
// What a model says that may call tools, read while it is written: text first, then calls. It is
// the way back from a text that tool_grammar() allows. Of others it makes something, never an
// error. Pure; of one thread.
#include <string>
#include <string_view>
#include <vector>

#include "atoll/grammar/tool_calls.h"

namespace atl::grammar {

/// The next piece of an answer.
struct ToolEvent {
  enum class Kind : uint8_t {
    kText,       // More of what stands before the calls.
    kCall,       // A call begins: the tool's name.
    kArguments,  // More of the last call's arguments, a JSON object as the model wrote it.
  };
  Kind kind = Kind::kText;
  std::string text;
  bool operator==(const ToolEvent&) const = default;
};

class ToolReader {
 public:
  explicit ToolReader(ToolForm form) : form_(form) {}

  std::vector<ToolEvent> add(std::string_view text);
  /// What was held back, when nothing more comes: blanks, and what might have become a mark.
  std::vector<ToolEvent> finish();

 private:
  enum class Where : uint8_t { kText, kBetween, kHead, kArguments };
  using Events = std::vector<ToolEvent>;
  /// Whether calls begin; then they are what held_ has.
  bool add_text(std::string_view text, Events& events);
  void add_call(char c, Events& events);
  void begin_arguments(Events& events);
  void step_string(char c);

  const ToolForm form_;
  Where where_ = Where::kText;
  std::string held_;           // Of the text, or a call up to its arguments.
  bool has_text_ = false;      // Some of it was shown.
  bool is_in_string_ = false;  // Of a call.
  bool is_escaped_ = false;
  int depth_ = 0;  // Of brackets in arguments.
};

struct ToolCall {
  std::string name;
  std::string arguments;  // A JSON text; of a text that was cut off, its begin.
  bool operator==(const ToolCall&) const = default;
};

struct ToolAnswer {
  std::string text;  // What stands before the calls.
  std::vector<ToolCall> calls;
  bool operator==(const ToolAnswer&) const = default;
};

/// All that a model has said.
ToolAnswer read_tool_answer(std::string_view text, ToolForm form);

}  // namespace atl::grammar
