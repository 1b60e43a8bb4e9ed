#include "atoll/grammar/tool_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/schema_compiler.h"
#include "atoll/text/json_text.h"

namespace atl::grammar {
namespace {

constexpr std::string_view kHermesBegin = "<tool_call>";
constexpr std::string_view kHermesEnd = "</tool_call>";
constexpr std::string_view kMistralBegin = "[TOOL_CALLS]";
constexpr size_t kMaxTools = 1000;

const char* arguments_name(ToolForm form) {
  return form == ToolForm::kLlama3 ? "parameters" : "arguments";
}

/// Any bytes up to the first `mark`, which leads to `behind`; each state before it may be the end.
void add_free_text(Nfa& nfa, uint32_t from, uint32_t end, std::string_view mark, uint32_t behind) {
  std::vector<uint32_t> states{from};  // By how much of the mark has been read.
  for (size_t i = 1; i < mark.size(); ++i) states.push_back(nfa.add_state());
  states.push_back(behind);
  for (size_t i = 0; i < mark.size(); ++i) {
    nfa.add_empty(states[i], end);
    for (int byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<uint8_t>(byte);
      const std::string text = std::string(mark.substr(0, i)) + static_cast<char>(value);
      nfa.add_bytes(states[i], states[begun(text, mark)], value, value);
    }
  }
}

/// The rules of one answer.
class ToolRules {
 public:
  ToolRules(GrammarBuilder& builder, const ToolOptions& options)
      : builder_(builder), options_(options), compiler_(builder, options.schema) {}

  RuleId answer(const std::vector<Tool>& tools) {
    Nfa nfa;
    const uint32_t start = nfa.add_state();
    const uint32_t end = nfa.add_state();
    const RuleId call = any_call(tools);
    const bool is_auto = options_.choice == ToolChoice::kAuto;
    switch (options_.form) {
      case ToolForm::kHermes:
        add_hermes(nfa, start, end, call, is_auto);
        break;
      case ToolForm::kLlama3:
        add_llama3(nfa, start, end, call, is_auto);
        break;
      case ToolForm::kMistral:
        add_mistral(nfa, start, end, call, is_auto);
        break;
    }
    compiler_.finish();
    return builder_.add(nfa.automaton(start, end, options_.schema.limits.rule_states));
  }

 private:
  /// {"name": "...", "arguments": {...}} of one of the tools.
  RuleId any_call(const std::vector<Tool>& tools) {
    Nfa nfa;
    const uint32_t start = nfa.add_state();
    const uint32_t end = nfa.add_state();
    const uint32_t first = compiler_.blanks(nfa, nfa.add_text(start, "{"));
    for (const Tool& tool : tools) {
      const std::string where = fmt::format("the parameters of tool '{}'", tool.name);
      schemas_.push_back(tool.parameters.empty()
                             ? Json{{"type", "object"}}
                             : parse_schema(tool.parameters, options_.schema.limits, where));
      const Json& schema = schemas_.back();
      objects_.push_back(
          {{"type", "object"}});  // Whatever the schema says, arguments are an object.
      const RuleId arguments = compiler_.rule(
          {{&objects_.back(), &objects_.back(), "", ""}, {&schema, &schema, "", ""}});
      Nfa name;
      const uint32_t name_start = name.add_state();
      const uint32_t name_end = name.add_text(name_start, Json(tool.name).dump());
      const RuleId name_rule = builder_.add(name.automaton(name_start, name_end, 10'000));
      uint32_t state = compiler_.property(nfa, first, "name", name_rule);
      state = compiler_.blanks(nfa, nfa.add_text(state, ","));
      state = compiler_.property(nfa, state, arguments_name(options_.form), arguments);
      nfa.add_bytes(state, end, '}', '}');
    }
    return builder_.add(nfa.automaton(start, end, options_.schema.limits.rule_states));
  }

  void add_hermes(Nfa& nfa, uint32_t start, uint32_t end, RuleId call, bool is_auto) {
    const uint32_t marked = nfa.add_state();
    if (is_auto) add_free_text(nfa, start, end, kHermesBegin, marked);
    if (!is_auto) nfa.add_empty(nfa.add_text(start, kHermesBegin), marked);
    const uint32_t called = nfa.add_state();
    nfa.add_call(nfa.add_text(marked, "\n"), called, call);
    const uint32_t done = nfa.add_text(called, fmt::format("\n{}", kHermesEnd));
    nfa.add_empty(done, end);
    if (options_.is_parallel) {
      nfa.add_empty(nfa.add_text(done, fmt::format("\n{}", kHermesBegin)), marked);
    }
  }

  void add_llama3(Nfa& nfa, uint32_t start, uint32_t end, RuleId call, bool is_auto) {
    const uint32_t done = nfa.add_state();
    nfa.add_call(start, done, call);
    nfa.add_empty(done, end);
    if (options_.is_parallel) nfa.add_call(nfa.add_text(done, "; "), done, call);
    if (!is_auto) return;
    // A text that does not begin as a call does.
    const uint32_t blank = nfa.add_state();
    const uint32_t text = nfa.add_state();
    nfa.add_empty(start, blank);
    nfa.add_empty(blank, end);
    nfa.add_empty(text, end);
    nfa.add_bytes(text, text, 0, 255);
    for (int byte = 0; byte < 256; ++byte) {
      const auto value = static_cast<uint8_t>(byte);
      const bool is_blank = byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
      if (byte != '{') nfa.add_bytes(blank, is_blank ? blank : text, value, value);
    }
  }

  void add_mistral(Nfa& nfa, uint32_t start, uint32_t end, RuleId call, bool is_auto) {
    const uint32_t marked = nfa.add_state();
    if (is_auto) add_free_text(nfa, start, end, kMistralBegin, marked);
    if (!is_auto) nfa.add_empty(nfa.add_text(start, kMistralBegin), marked);
    const uint32_t item = compiler_.blanks(nfa, nfa.add_text(compiler_.blanks(nfa, marked), "["));
    const uint32_t done = nfa.add_state();
    nfa.add_call(item, done, call);
    const uint32_t behind = compiler_.blanks(nfa, done);
    nfa.add_bytes(behind, end, ']', ']');
    if (options_.is_parallel) {
      nfa.add_call(compiler_.blanks(nfa, nfa.add_text(behind, ",")), done, call);
    }
  }

  GrammarBuilder& builder_;
  const ToolOptions& options_;
  SchemaCompiler compiler_;
  std::deque<Json> schemas_, objects_;
};

}  // namespace

std::string_view mark_of(ToolForm form) {
  switch (form) {
    case ToolForm::kHermes:
      return kHermesBegin;
    case ToolForm::kMistral:
      return kMistralBegin;
    case ToolForm::kLlama3:
      return "";
  }
  return "";
}

size_t begun(std::string_view text, std::string_view mark) {
  size_t length = std::min(text.size(), mark.size());
  while (!text.ends_with(mark.substr(0, length))) --length;
  return length;
}

std::shared_ptr<const Grammar> tool_grammar(const std::vector<Tool>& tools,
                                            const ToolOptions& options) {
  if (tools.empty() || tools.size() > kMaxTools) {
    throw InputError(fmt::format("there must be from one to {} tools", kMaxTools));
  }
  size_t num_bytes = 0;
  for (const Tool& tool : tools) {
    num_bytes += tool.name.size() + tool.parameters.size();
    if (num_bytes > options.schema.limits.schema_bytes) {
      throw InputError(fmt::format("the tools have over {} bytes", num_bytes));
    }
    try {  // Each alone first: then its name is known where it is refused.
      if (!tool.parameters.empty()) schema_grammar(tool.parameters, options.schema);
    } catch (const InputError& error) {
      throw InputError(fmt::format("tool '{}': {}", tool.name, error.what()));
    }
  }
  GrammarBuilder builder(options.schema.limits);
  ToolRules rules(builder, options);
  const RuleId root = rules.answer(tools);
  return std::move(builder).build(root);
}

}  // namespace atl::grammar
