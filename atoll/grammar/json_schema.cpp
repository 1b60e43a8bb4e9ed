#include "atoll/grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/pattern.h"
#include "atoll/grammar/schema_compiler.h"
#include "atoll/text/json_text.h"

namespace atl::grammar {
namespace {

constexpr uint32_t kMaxIndent = 40;
constexpr size_t kMaxNesting = 500;

Automaton indent_automaton() {
  return {
      .states = {{.edges = {{'\t', '\t', Counting::kCounts, 0}, {' ', ' ', Counting::kCounts, 0}},
                  .accepts = true}}};
}

void add_hex(Nfa& nfa, uint32_t from, uint32_t to, int first, int last) {
  for (const auto& [low, high, base] :
       {std::tuple{0, 9, int{'0'}}, {10, 15, 'a' - 10}, {10, 15, 'A' - 10}}) {
    const int begin = std::max(first, low), end = std::min(last, high);
    if (begin > end) continue;
    nfa.add_bytes(from, to, static_cast<uint8_t>(base + begin), static_cast<uint8_t>(base + end));
  }
}

/// A string behind its first quote, with as many characters as its caller wants. Any escape is
/// right here, a surrogate's only beside the other half.
Automaton text_automaton() {
  Nfa nfa;
  const uint32_t body = nfa.add_state(), end = nfa.add_state();
  nfa.add_bytes(body, end, '"', '"', Counting::kNeedsEnough);
  for (const auto& [first, last] :
       {std::pair{uint32_t{' '}, uint32_t{'!'}}, {'#', '['}, {']', kLastCharacter}}) {
    nfa.add_characters(body, body, first, last, Counting::kCounts);
  }
  const uint32_t escape = nfa.add_state();
  nfa.add_bytes(body, escape, '\\', '\\', Counting::kCounts);
  for (const char c : std::string_view("\"\\/bfnrt")) {
    nfa.add_bytes(escape, body, static_cast<uint8_t>(c), static_cast<uint8_t>(c));
  }
  uint32_t digits[4], low_digits[4], low[2];
  for (uint32_t& state : digits) state = nfa.add_state();
  for (uint32_t& state : low_digits) state = nfa.add_state();
  for (uint32_t& state : low) state = nfa.add_state();
  nfa.add_bytes(escape, digits[0], 'u', 'u');
  // All but D8 to DF go on with two digits of any kind.
  add_hex(nfa, digits[0], digits[1], 0, 12);
  add_hex(nfa, digits[0], digits[1], 14, 15);
  add_hex(nfa, digits[1], digits[2], 0, 15);
  add_hex(nfa, digits[2], digits[3], 0, 15);
  add_hex(nfa, digits[3], body, 0, 15);
  const uint32_t after_d = nfa.add_state();
  add_hex(nfa, digits[0], after_d, 13, 13);
  add_hex(nfa, after_d, digits[2], 0, 7);
  // D8 to DB: two digits, then \uDC to DF and two digits.
  add_hex(nfa, after_d, low_digits[0], 8, 11);
  add_hex(nfa, low_digits[0], low_digits[1], 0, 15);
  add_hex(nfa, low_digits[1], low_digits[2], 0, 15);
  const uint32_t low_u = nfa.add_text(low_digits[2], "\\u");
  add_hex(nfa, low_u, low[0], 13, 13);
  add_hex(nfa, low[0], low[1], 12, 15);
  add_hex(nfa, low[1], low_digits[3], 0, 15);
  add_hex(nfa, low_digits[3], body, 0, 15);
  return nfa.automaton(body, end, 1000);
}

Automaton string_automaton() {
  Nfa nfa;
  const uint32_t start = nfa.add_state(), end = nfa.add_state();
  nfa.add_automaton(nfa.add_text(start, "\""), end, text_automaton());
  return nfa.automaton(start, end, 1000);
}

}  // namespace

SchemaCompiler::SchemaCompiler(GrammarBuilder& builder, const SchemaOptions& options)
    : builder_(builder),
      options_(options),
      reader_(options_.limits),
      indent_(builder.add(indent_automaton())),
      text_(builder.add(text_automaton())),
      string_(builder.add(string_automaton())),
      integer_(builder.add(number_automaton({.is_integer = true}, 1000))),
      number_(builder.add(number_automaton({}, 1000))) {
  builder.share();
}

RuleId SchemaCompiler::rule(const std::vector<SchemaNode>& nodes) {
  std::vector<const Json*> key;
  for (const SchemaNode& node : nodes) key.push_back(node.schema);
  std::ranges::sort(key);
  key.erase(std::ranges::unique(key).begin(), key.end());
  const auto found = rules_.find(key);
  if (found != rules_.end()) return found->second;
  const RuleId rule = builder_.declare();
  rules_.emplace(std::move(key), rule);
  wanted_.push_back({rule, nodes});
  return rule;
}

void SchemaCompiler::finish() {
  while (!wanted_.empty()) {
    const Wanted wanted = std::move(wanted_.back());
    wanted_.pop_back();
    builder_.define(wanted.rule, value(wanted.nodes));
  }
}

uint32_t SchemaCompiler::blanks(Nfa& nfa, uint32_t from) {
  if (options_.blanks == Blanks::kNone) return from;
  const uint32_t to = nfa.add_state();
  const uint32_t line = nfa.add_state();
  nfa.add_empty(from, to);
  nfa.add_bytes(from, to, ' ', ' ');
  nfa.add_bytes(from, line, '\n', '\n');
  nfa.add_call(line, to, indent_, {0, kMaxIndent});
  return to;
}

uint32_t SchemaCompiler::property(Nfa& nfa, uint32_t from, const std::string& name, RuleId value) {
  uint32_t state = nfa.add_text(from, "\"" + json_body(name) + "\"");
  state = nfa.add_text(blanks(nfa, state), ":");
  const uint32_t behind = nfa.add_state();
  nfa.add_call(blanks(nfa, state), behind, value);
  return blanks(nfa, behind);
}

Automaton SchemaCompiler::value(const std::vector<SchemaNode>& nodes) {
  const std::string& path = nodes.empty() ? "" : nodes.front().path;
  try {
    Nfa nfa;
    const uint32_t start = nfa.add_state();
    const uint32_t end = nfa.add_state();
    for (const SchemaCase& one : reader_.read(nodes)) add_case(nfa, start, end, one);
    return nfa.automaton(start, end, options_.limits.rule_states);
  } catch (const Json::exception&) {
    throw InputError(
        fmt::format("schema, #{}: a keyword has a value of another kind than it must", path));
  } catch (const InputError& error) {
    if (std::string_view(error.what()).starts_with("schema")) throw;
    throw InputError(fmt::format("schema, #{}: {}", path, error.what()));
  }
}

void SchemaCompiler::add_case(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  if (one.values) return add_values(nfa, from, to, one);
  for (const auto& [type, text] : {std::pair{kNull, "null"}, {kTrue, "true"}, {kFalse, "false"}}) {
    if ((one.types & type) != 0) nfa.add_empty(nfa.add_text(from, text), to);
  }
  if ((one.types & kNumbers) != 0) add_numbers(nfa, from, to, one);
  if ((one.types & kString) != 0) add_strings(nfa, from, to, one);
  if ((one.types & kArray) != 0) add_array(nfa, from, to, one);
  if ((one.types & kObject) != 0) add_object(nfa, from, to, one);
}

void SchemaCompiler::add_values(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  for (const Json& value : *one.values) {
    if (reader_.admits(one, value)) nfa.add_empty(nfa.add_text(from, value.dump()), to);
  }
}

void SchemaCompiler::add_numbers(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  NumberRules rules = one.numbers;
  rules.is_integer = (one.types & kFraction) == 0;
  if ((one.types & kInteger) == 0) rules.not_multiples.emplace_back("1");
  if (rules.are_empty()) {
    nfa.add_call(from, to, rules.is_integer ? integer_ : number_);
    return;
  }
  try {
    nfa.add_automaton(from, to, number_automaton(rules, options_.limits.rule_states));
  } catch (const InputError& error) {
    throw InputError(
        fmt::format("'{}': {}", rules.multiples.empty() ? "minimum" : "multipleOf", error.what()));
  }
}

void SchemaCompiler::add_strings(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  if (one.length.min > one.length.max) return;
  if (one.strings.empty() && one.excluded_texts.empty()) {
    nfa.add_call(from, to, string_, one.length);
    return;
  }
  const Automaton body = reader_.string_body(one, {one.length.min});
  const auto add = [&](Nfa& into, uint32_t begin, uint32_t end) {
    const uint32_t quote = into.add_state();
    into.add_automaton(into.add_text(begin, "\""), quote, body);
    into.add_bytes(quote, end, '"', '"');
  };
  if (one.length.max == kNoLimit) return add(nfa, from, to);
  Nfa counted;  // A rule of its own, which its caller bounds.
  const uint32_t begin = counted.add_state(), end = counted.add_state();
  add(counted, begin, end);
  const size_t max_states = options_.limits.rule_states;
  nfa.add_call(from, to, builder_.add(counted.automaton(begin, end, max_states)),
               {0, one.length.max});
}

namespace {

template <typename Add>
std::shared_ptr<const Grammar> build(const SchemaOptions& options, const Add& add) {
  GrammarBuilder builder(options.limits);
  SchemaCompiler compiler(builder, options);
  const RuleId root = add(builder, compiler);
  compiler.finish();
  try {
    return std::move(builder).build(root);
  } catch (const InputError& error) {
    throw InputError(fmt::format("schema: {}", error.what()));
  }
}

}  // namespace

Json parse_schema(std::string_view schema, const GrammarLimits& limits, const std::string& name) {
  if (schema.size() > limits.schema_bytes) {
    throw InputError(fmt::format("{}: it has over {} bytes", name, limits.schema_bytes));
  }
  // Values are copied and written by functions that call themselves.
  size_t depth = 0, deepest = 0;
  for (const char c : schema) {
    if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
    if ((c == '}' || c == ']') && depth > 0) --depth;
  }
  if (deepest > kMaxNesting) {
    throw InputError(fmt::format("{}: over {} brackets in each other", name, kMaxNesting));
  }
  return text::parse_json<Json>(schema, name);
}

std::shared_ptr<const Grammar> schema_grammar(std::string_view schema,
                                              const SchemaOptions& options) {
  const Json document = parse_schema(schema, options.limits, "schema");
  return build(options, [&](GrammarBuilder&, SchemaCompiler& compiler) {
    return compiler.rule({{&document, &document, "", ""}});
  });
}

std::shared_ptr<const Grammar> object_grammar(const SchemaOptions& options) {
  return schema_grammar(R"({"type": "object"})", options);
}

std::shared_ptr<const Grammar> choice_grammar(std::span<const std::string> texts,
                                              const GrammarLimits& limits) {
  size_t num_bytes = 0;
  for (const std::string& text : texts) num_bytes += text.size();
  const bool has_empty = std::ranges::any_of(texts, &std::string::empty);
  if (texts.empty() || has_empty || num_bytes > limits.schema_bytes) {
    throw InputError(fmt::format("there must be a choice, none of them empty, of {} bytes in all",
                                 limits.schema_bytes));
  }
  Nfa nfa;
  const uint32_t start = nfa.add_state();
  const uint32_t end = nfa.add_state();
  for (const std::string& text : texts) nfa.add_empty(nfa.add_text(start, text), end);
  GrammarBuilder builder(limits);
  const RuleId root = builder.add(nfa.automaton(start, end, limits.states));
  return std::move(builder).build(root);
}

}  // namespace atl::grammar
