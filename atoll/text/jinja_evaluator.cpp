#include "atoll/text/jinja_evaluator.h"

#include <fmt/format.h>

#include <stdexcept>

#include "atoll/text/jinja_functions.h"
#include "atoll/text/jinja_operators.h"

namespace atl::text::jinja {
namespace {

constexpr int kMaxDepth = 600;  // Of expressions, tags and macros in each other.

class Deeper {
 public:
  explicit Deeper(int& depth) : depth_(depth) {
    if (depth_ >= kMaxDepth) fail("the template calls itself too deep");
    ++depth_;
  }
  ~Deeper() { --depth_; }

 private:
  int& depth_;
};

bool holds(const Rules& rules, const std::string& operation, const Value& a, const Value& b) {
  if (operation == "==") return equal(rules, a, b);
  if (operation == "!=") return !equal(rules, a, b);
  if (operation == "in") return contains(rules, b, a);
  if (operation == "not in") return !contains(rules, b, a);
  if (operation == "<") return less(rules, a, b);
  if (operation == ">") return less(rules, b, a);
  if (operation == "<=") return less(rules, a, b) || equal(rules, a, b);
  return less(rules, b, a) || equal(rules, a, b);
}

}  // namespace

Evaluator::Evaluator(const Template& from, const nlohmann::ordered_json& variables)
    : template_(from), rules_{meter_, from.options} {
  if (!variables.is_object()) fail("the variables are not an object");
  for (const auto& [name, value] : variables.items()) {
    variables_.insert_or_assign(name, from_json(value, meter_));
  }
}

template <typename Body>
auto Evaluator::in_scope(Scope* around, const std::vector<std::string>& unset, const Body& body) {
  const size_t num_macros = macros_.size();
  const size_t num_scopes = scopes_.size();
  scopes_.push_back({around, {}});
  Scope& scope = scopes_.back();
  for (const std::string& name : unset) {
    scope.names[name] = make_undefined(fmt::format("'{}' is undefined", name));
  }
  auto result = body(scope);
  while (macros_.size() == num_macros && scopes_.size() > num_scopes) scopes_.pop_back();
  return result;
}

std::string Evaluator::run() {
  std::string out;
  in_scope(nullptr, template_.unset, [&](Scope& scope) { return run(template_.body, scope, out); });
  return out;
}

void Evaluator::write(std::string& out, const std::string& text) {
  out += text;
  if (out.size() > Meter::kMaxText) fail("the template's text gets longer than 64 MiB");
}

Evaluator::Flow Evaluator::run(const Block& block, Scope& scope, std::string& out) {
  for (const Statement& statement : block) {
    const Flow flow = run(statement, scope, out);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::run(const Statement& statement, Scope& scope, std::string& out) {
  const Deeper deeper(depth_);
  meter_.step();
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::kText:
      meter_.text(statement.text.size());
      write(out, statement.text);
      return Flow::kOn;
    case Statement::kPrint:
      write(out, to_text(rules_, evaluate(*statement.expression, scope)));
      return Flow::kOn;
    case Statement::kIf:
      return run_if(statement, scope, out);
    case Statement::kFor:
      return run_for(statement, scope, out);
    case Statement::kSet:
      assign(statement.target, evaluate(*statement.expression, scope), scope);
      return Flow::kOn;
    case Statement::kSetBlock:
      run_set_block(statement, scope);
      return Flow::kOn;
    case Statement::kMacro:
      macros_.push_back({&statement, &scope});
      scope.names[statement.text] = Value(static_cast<const MacroValue*>(&macros_.back()));
      return Flow::kOn;
    case Statement::kGeneration:
      return in_scope(&scope, statement.unset,
                      [&](Scope& inner) { return run(statement.blocks[0], inner, out); });
    case Statement::kBreak:
      return Flow::kBreak;
    case Statement::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Evaluator::Flow Evaluator::run_if(const Statement& statement, Scope& scope, std::string& out) {
  for (size_t i = 0; i < statement.conditions.size(); ++i) {
    if (truth(rules_, evaluate(*statement.conditions[i], scope))) {
      return run(statement.blocks[i], scope, out);
    }
  }
  if (statement.blocks.size() == statement.conditions.size()) return Flow::kOn;
  return run(statement.blocks.back(), scope, out);
}

std::vector<Value> Evaluator::chosen_items(const Statement& loop, const std::vector<Value>& items,
                                           Scope& scope, std::exception_ptr& failure) {
  std::vector<Value> chosen;
  try {
    for (const Value& item : items) {
      const bool holds = in_scope(&scope, {}, [&](Scope& tested) {
        assign(loop.target, item, tested);
        return truth(rules_, evaluate(*loop.conditions[0], tested));
      });
      if (holds) chosen.push_back(item);
    }
  } catch (const std::runtime_error&) {
    failure = std::current_exception();
  }
  return chosen;
}

Evaluator::Flow Evaluator::run_for(const Statement& statement, Scope& scope, std::string& out) {
  std::vector<Value> items = iterate(rules_, evaluate(*statement.expression, scope));
  std::exception_ptr failure;  // In Jinja2 a condition fails when the loop comes to its item.
  if (statement.conditions[0]) items = chosen_items(statement, items, scope, failure);
  loops_.push_back({.items = std::move(items)});
  Loop& loop = loops_.back();
  // As in Jinja2, where the flag is set at the end of the body: only a round that comes there
  // counts for `else`.
  bool has_else = true;
  for (; loop.index0 < loop.items.size(); ++loop.index0) {
    meter_.step();
    const Flow flow = in_scope(&scope, statement.unset, [&](Scope& inner) {
      inner.names["loop"] = Value(&loop);
      assign(statement.target, loop.items[loop.index0], inner);
      return run(statement.blocks[0], inner, out);
    });
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kOn) has_else = false;
  }
  if (failure && loop.index0 == loop.items.size()) std::rethrow_exception(failure);
  if (!has_else || statement.blocks.size() < 2) return Flow::kOn;
  return in_scope(&scope, statement.unset_in_else,
                  [&](Scope& inner) { return run(statement.blocks[1], inner, out); });
}

void Evaluator::run_set_block(const Statement& statement, Scope& scope) {
  std::string text;
  in_scope(&scope, statement.unset,
           [&](Scope& inner) { return run(statement.blocks[0], inner, text); });
  const Value block = make_text(std::move(text));
  const Expression* filters = statement.expression.get();
  assign(statement.target, filters ? evaluate_filter(*filters, &block, scope) : block, scope);
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.kind == Target::kName) {
    scope.names[target.name] = value;
  } else if (target.kind == Target::kAttribute) {
    const Value holder = look_up(target.name, scope);
    const auto* space = holder.as<Namespace*>();
    if (!space)
      fail(fmt::format("'{}' is no namespace: its attributes cannot be set", target.name));
    set_attribute(**space, target.attribute, value);
  } else {
    require_defined(value);
    const std::vector<Value> items = iterate(rules_, value);
    if (items.size() != target.parts.size()) {
      fail(fmt::format("{} values for {} names", items.size(), target.parts.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i], scope);
  }
}

Value Evaluator::look_up(const std::string& name, const Scope& scope) const {
  for (const Scope* each = &scope; each; each = each->around) {
    const auto found = each->names.find(name);
    if (found != each->names.end()) return found->second;
  }
  const auto found = variables_.find(name);
  if (found != variables_.end()) return found->second;
  static const std::unordered_map<std::string, Function> functions = {
      {"range", Function::kRange},
      {"dict", Function::kDict},
      {"namespace", Function::kNamespace},
      {"raise_exception", Function::kRaiseException},
      {"strftime_now", Function::kStrftimeNow}};
  const auto function = functions.find(name);
  if (function != functions.end() &&
      (function->second <= Function::kNamespace || rules_.options.transformers)) {
    return Value(function->second);
  }
  return make_undefined(fmt::format("'{}' is undefined", name));
}

Value Evaluator::evaluate(const Expression& node, Scope& scope) {
  const Deeper deeper(depth_);
  meter_.step();
  line_ = node.line;
  switch (node.kind) {
    case Expression::kConstant:
      return node.value;
    case Expression::kName:
      return look_up(node.name, scope);
    case Expression::kNot:
      return Value(!truth(rules_, evaluate(*node.parts[0], scope)));
    case Expression::kAnd:
    case Expression::kOr: {
      const Value left = evaluate(*node.parts[0], scope);
      if (truth(rules_, left) != (node.kind == Expression::kAnd)) return left;
      return evaluate(*node.parts[1], scope);
    }
    case Expression::kConditional:
      if (truth(rules_, evaluate(*node.parts[0], scope))) return evaluate(*node.parts[1], scope);
      if (node.parts[2]) return evaluate(*node.parts[2], scope);
      return make_undefined("the condition of an if without else does not hold", true);
    case Expression::kCompare:
      return evaluate_compare(node, scope);
    case Expression::kDict:
      return evaluate_dict(node, scope);
    case Expression::kSlice:
      return evaluate_slice(node, scope);
    case Expression::kFilter:
      return evaluate_filter(node, nullptr, scope);
    case Expression::kTest: {
      const Value value = evaluate(*node.parts[0], scope);
      const Arguments given = arguments(node, scope);
      line_ = node.line;
      return Value(find_test(node.name)(rules_, value, given));
    }
    case Expression::kCall: {
      const Value callee = evaluate(*node.parts[0], scope);
      const Arguments given = arguments(node, scope);
      line_ = node.line;
      return call(callee, given);
    }
    default:
      return evaluate_parts(node, scope);
  }
}

/// Of what is made of all parts' values.
Value Evaluator::evaluate_parts(const Expression& node, Scope& scope) {
  std::vector<Value> parts;
  for (const ExpressionPtr& part : node.parts) parts.push_back(evaluate(*part, scope));
  line_ = node.line;
  switch (node.kind) {
    case Expression::kList:
      return make_sequence(Sequence::kList, std::move(parts), meter_);
    case Expression::kTuple:
      return make_sequence(Sequence::kTuple, std::move(parts), meter_);
    case Expression::kNegative:
      return negative(parts[0]);
    case Expression::kPositive:
      return negative(negative(parts[0]));
    case Expression::kArithmetic:
      return arithmetic(rules_, node.name, parts[0], parts[1]);
    case Expression::kConcat:
      return concatenate(rules_, parts);
    case Expression::kAttribute:
      return attribute(parts[0], node.name);
    default:
      return item(rules_, parts[0], parts[1]);
  }
}

Value Evaluator::evaluate_compare(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.parts[0], scope);
  for (size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1], scope);
    line_ = node.line;
    if (!holds(rules_, node.names[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::evaluate_dict(const Expression& node, Scope& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (size_t i = 0; i < node.parts.size(); i += 2) {
    Value key = evaluate(*node.parts[i], scope);
    entries.emplace_back(std::move(key), evaluate(*node.parts[i + 1], scope));
  }
  line_ = node.line;
  return make_mapping(std::move(entries), meter_);
}

Value Evaluator::evaluate_slice(const Expression& node, Scope& scope) {
  const Value value = evaluate(*node.parts[0], scope);
  Value places[3];
  for (size_t i = 0; i < 3; ++i) {
    if (node.parts[i + 1]) places[i] = evaluate(*node.parts[i + 1], scope);
  }
  line_ = node.line;
  return slice(rules_, value, &places[0], &places[1], &places[2]);
}

Value Evaluator::evaluate_filter(const Expression& node, const Value* block, Scope& scope) {
  const Deeper deeper(depth_);
  const Expression* inner = node.parts[0].get();
  Value value;
  if (!inner) {
    value = *block;
  } else {
    value = inner->kind == Expression::kFilter ? evaluate_filter(*inner, block, scope)
                                               : evaluate(*inner, scope);
  }
  const Arguments given = arguments(node, scope);
  meter_.step();
  line_ = node.line;
  return find_filter(node.name)(rules_, value, given);
}

Arguments Evaluator::arguments(const Expression& node, Scope& scope) {
  Arguments found;
  for (size_t i = 1; i < node.parts.size(); ++i) {
    found.positional.push_back(evaluate(*node.parts[i], scope));
  }
  for (const auto& [name, value] : node.named) {
    found.named.emplace_back(name, evaluate(*value, scope));
  }
  return found;
}

Value Evaluator::call(const Value& callee, const Arguments& arguments) {
  if (const auto* macro = callee.as<const MacroValue*>()) return call_macro(**macro, arguments);
  if (const auto* function = callee.as<Function>()) {
    return *function == Function::kNamespace ? make_namespace(arguments)
                                             : call_function(rules_, *function, arguments);
  }
  if (const auto* method = callee.as<std::shared_ptr<const BoundMethod>>()) {
    return call_method(rules_, **method, arguments);
  }
  require_defined(callee);
  fail(fmt::format("a {} cannot be called", type_name(callee)));
}

void Evaluator::set_attribute(Namespace& space, const std::string& name, const Value& value) const {
  if (rules_.options.transformers && name.starts_with('_')) {
    fail("a namespace's attribute must not begin with _");
  }
  space.attributes[name] = value;
}

Value Evaluator::make_namespace(const Arguments& arguments) {
  const Arguments positional = arguments.only_positional();
  const Bound bound("namespace", positional, {""});
  namespaces_.emplace_back();
  meter_.items(8);
  Namespace& space = namespaces_.back();
  if (const Value* from = bound.get(0)) {
    if (!from->mapping()) fail("namespace of something else than a dictionary is not supported");
    for (const auto& [name, value] : from->mapping()->entries) {
      if (!name.text()) fail("namespace: a name is a text");
      set_attribute(space, *name.text(), value);
    }
  }
  for (const auto& [name, value] : arguments.named) set_attribute(space, name, value);
  return Value(&space);
}

void Evaluator::bind(const MacroValue& macro, const Arguments& arguments, Scope& scope) {
  const Statement& statement = *macro.statement;
  const std::vector<Parameter>& parameters = statement.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    scope.names[parameters[i].name] =
        i < arguments.positional.size()
            ? arguments.positional[i]
            : make_undefined(fmt::format("the argument '{}' was not given", parameters[i].name));
  }
  std::vector<bool> is_given(parameters.size());
  for (const auto& [name, value] : arguments.named) {
    size_t place = 0;
    while (place < parameters.size() && parameters[place].name != name) ++place;
    if (place == parameters.size() || place < arguments.positional.size()) {
      fail(fmt::format("the macro {} takes no further argument '{}'", statement.text, name));
    }
    scope.names[name] = value;
    is_given[place] = true;
  }
  for (size_t i = arguments.positional.size(); i < parameters.size(); ++i) {
    if (is_given[i] || !parameters[i].otherwise) continue;
    scope.names[parameters[i].name] = evaluate(*parameters[i].otherwise, scope);
  }
}

Value Evaluator::call_macro(const MacroValue& macro, const Arguments& arguments) {
  const Deeper deeper(depth_);
  const Statement& statement = *macro.statement;
  const std::vector<Parameter>& parameters = statement.parameters;
  if (arguments.positional.size() > parameters.size()) {
    fail(fmt::format("the macro {} takes at most {} arguments", statement.text, parameters.size()));
  }
  std::string text;
  in_scope(macro.scope, statement.unset, [&](Scope& scope) {
    bind(macro, arguments, scope);
    return run(statement.blocks[0], scope, text);
  });
  meter_.text(text.size());
  return make_text(std::move(text));
}

}  // namespace atl::text::jinja
