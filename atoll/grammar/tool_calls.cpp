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
constexpr int kMaxNesting = 500;

std::string_view mark_of(ToolForm form) {
  return form == ToolForm::kMistral ? kMistralBegin : kHermesBegin;
}

const char* arguments_name(ToolForm form) {
  return form == ToolForm::kLlama3 ? "parameters" : "arguments";
}

/// How much of `mark` the end of `text` is the begin of.
size_t begun(std::string_view text, std::string_view mark) {
  size_t length = std::min(text.size(), mark.size());
  while (!text.ends_with(mark.substr(0, length))) --length;
  return length;
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

/// The calls of a JSON value: one, or a list of them. False where it is none.
bool read_calls(const Json& value, ToolForm form, std::vector<ToolCall>& calls) {
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& call : list) {
    const char* name = arguments_name(form);
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
    if (!call.contains(name) || !call[name].is_object()) return false;
    calls.push_back({call["name"], call[name].dump()});
  }
  return !list.empty();
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \n\t\r";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

/// The JSON text at the begin of `text`, by its brackets; nothing where it does not end.
std::optional<std::string_view> take_json(std::string_view& text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    if (c == '"') in_string = true;
    if ((c == '{' || c == '[') && ++depth > kMaxNesting) return {};
    if ((c == '}' || c == ']') && --depth <= 0) {
      const std::string_view json = text.substr(0, i + 1);
      text.remove_prefix(i + 1);
      return json;
    }
  }
  return {};
}

}  // namespace

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

size_t text_before_calls(std::string_view text, ToolForm form) {
  if (form == ToolForm::kLlama3) {
    const std::string_view said = trim(text);
    return said.empty() || said.starts_with('{') ? 0 : text.size();
  }
  const size_t found = text.find(mark_of(form));
  return found != std::string_view::npos ? found : text.size() - begun(text, mark_of(form));
}

ToolAnswer read_tool_answer(std::string_view text, ToolForm form) {
  const ToolAnswer all_text{std::string(text), {}};
  const bool has_mark = form != ToolForm::kLlama3;
  const size_t begin = has_mark ? text.find(mark_of(form)) : 0;
  if (begin == std::string_view::npos) return all_text;
  ToolAnswer answer{std::string(trim(text.substr(0, begin))), {}};
  std::string_view rest = trim(text.substr(begin));
  constexpr std::string_view kPython = "<|python_tag|>";
  if (form == ToolForm::kLlama3 && rest.starts_with(kPython)) rest.remove_prefix(kPython.size());
  try {
    while (!rest.empty()) {
      if (has_mark && rest.starts_with(mark_of(form))) rest.remove_prefix(mark_of(form).size());
      rest = trim(rest);
      if (!rest.starts_with('{') && !rest.starts_with('[')) return all_text;
      const auto json = take_json(rest);
      if (!json || !read_calls(Json::parse(*json), form, answer.calls)) return all_text;
      rest = trim(rest);
      if (form == ToolForm::kHermes && rest.starts_with(kHermesEnd)) {
        rest = trim(rest.substr(kHermesEnd.size()));
      } else if (form == ToolForm::kLlama3 && rest.starts_with(';')) {
        rest = trim(rest.substr(1));
      }
    }
  } catch (const Json::exception&) {
    return all_text;
  }
  return answer.calls.empty() ? all_text : answer;
}

}  // namespace atl::grammar
