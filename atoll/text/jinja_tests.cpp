// `x is test`.
#include <fmt/format.h>

#include "atoll/text/jinja_filters.h"
#include "atoll/text/jinja_operators.h"
#include "atoll/text/jinja_parser.h"
#include "atoll/text/python_text.h"

namespace atl::text::jinja {
namespace {

bool is_length_known(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.text() || value.mapping() || (sequence && sequence->kind <= Sequence::kRange);
}

bool is_iterable(const Rules& rules, const Value& value) {
  require_defined_if_strict(rules, value);
  return value.text() || value.mapping() || value.sequence() || value.is<Undefined>() ||
         value.is<Loop*>();
}

bool divides(const Rules& rules, const Value& value, const Value& by) {
  const Value rest = arithmetic(rules, "%", value, by);
  return equal(rules, rest, Value(int64_t{0}));
}

/// `is` of Python: what is one object there.
bool same(const Value& a, const Value& b) {
  if (a.is<None>() || b.is<None>()) return a.is<None>() && b.is<None>();
  const auto* left = a.as<bool>();
  const auto* right = b.as<bool>();
  if (left || right) return left && right && *left == *right;
  fail("sameas is supported for true, false and none only");
}

using Unary = bool (*)(const Rules&, const Value&);
/// A test without arguments.
template <Unary kIs>
bool alone(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("the test", arguments, {});
  return kIs(rules, value);
}

using Binary = bool (*)(const Rules&, const Value&, const Value&);
template <Binary kIs>
bool with(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("the test", arguments, {""});
  return kIs(rules, value, bound.need(0));
}

bool is_a_number(const Rules&, const Value& value) { return is_number(value); }
bool is_defined(const Rules&, const Value& value) { return !value.is<Undefined>(); }
bool is_undefined(const Rules&, const Value& value) { return value.is<Undefined>(); }
bool is_none(const Rules&, const Value& value) { return value.is<None>(); }
bool is_boolean(const Rules&, const Value& value) { return value.is<bool>(); }
bool is_true(const Rules&, const Value& value) { return value.is<bool>() && *value.as<bool>(); }
bool is_false(const Rules&, const Value& value) { return value.is<bool>() && !*value.as<bool>(); }
bool is_integer(const Rules&, const Value& value) { return value.is<int64_t>(); }
bool is_float(const Rules&, const Value& value) { return value.is<double>(); }
bool is_string(const Rules&, const Value& value) { return value.is<Text>(); }
bool is_mapping(const Rules&, const Value& value) { return value.mapping() != nullptr; }
bool is_sequence(const Rules& rules, const Value& value) {
  return is_length_known(value) || (value.is<Undefined>() && !rules.options.strict_undefined);
}
bool is_odd(const Rules& rules, const Value& value) {
  return equal(rules, arithmetic(rules, "%", value, Value(int64_t{2})), Value(int64_t{1}));
}
bool is_even(const Rules& rules, const Value& value) {
  return divides(rules, value, Value(int64_t{2}));
}
bool is_small(const Rules& rules, const Value& value) { return is_lower(to_text(rules, value)); }
bool is_large(const Rules& rules, const Value& value) { return is_upper(to_text(rules, value)); }
bool is_callable(const Rules&, const Value& value) {
  return value.is<Function>() || value.is<const MacroValue*>() ||
         value.is<std::shared_ptr<const BoundMethod>>() || value.is<Loop*>() ||
         value.is<Undefined>();
}
bool is_escaped(const Rules&, const Value& value) {
  const auto* text = value.as<Text>();
  return text && text->is_safe;
}
bool is_unequal(const Rules& rules, const Value& a, const Value& b) { return !equal(rules, a, b); }
bool is_less(const Rules& rules, const Value& a, const Value& b) { return less(rules, a, b); }
bool is_greater(const Rules& rules, const Value& a, const Value& b) { return less(rules, b, a); }
bool is_at_most(const Rules& rules, const Value& a, const Value& b) {
  return less(rules, a, b) || equal(rules, a, b);
}
bool is_at_least(const Rules& rules, const Value& a, const Value& b) {
  return less(rules, b, a) || equal(rules, a, b);
}
bool is_in(const Rules& rules, const Value& a, const Value& b) { return contains(rules, b, a); }
bool is_same(const Rules&, const Value& a, const Value& b) { return same(a, b); }

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> tests = {
      {"defined", alone<is_defined>},
      {"undefined", alone<is_undefined>},
      {"none", alone<is_none>},
      {"boolean", alone<is_boolean>},
      {"true", alone<is_true>},
      {"false", alone<is_false>},
      {"integer", alone<is_integer>},
      {"float", alone<is_float>},
      {"number", alone<is_a_number>},
      {"string", alone<is_string>},
      {"mapping", alone<is_mapping>},
      {"sequence", alone<is_sequence>},
      {"iterable", alone<is_iterable>},
      {"callable", alone<is_callable>},
      {"odd", alone<is_odd>},
      {"even", alone<is_even>},
      {"lower", alone<is_small>},
      {"upper", alone<is_large>},
      {"escaped", alone<is_escaped>},
      {"divisibleby", with<divides>},
      {"sameas", with<is_same>},
      {"in", with<is_in>},
      {"==", with<equal>},
      {"eq", with<equal>},
      {"equalto", with<equal>},
      {"!=", with<is_unequal>},
      {"ne", with<is_unequal>},
      {"<", with<is_less>},
      {"lt", with<is_less>},
      {"lessthan", with<is_less>},
      {">", with<is_greater>},
      {"gt", with<is_greater>},
      {"greaterthan", with<is_greater>},
      {"<=", with<is_at_most>},
      {"le", with<is_at_most>},
      {">=", with<is_at_least>},
      {"ge", with<is_at_least>}};
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

}  // namespace atl::text::jinja
