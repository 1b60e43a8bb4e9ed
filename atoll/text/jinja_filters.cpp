// Filters of single values.
#include "atoll/text/jinja_filters.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "atoll/text/jinja_operators.h"
#include "atoll/text/python_text.h"

namespace atl::text::jinja {
namespace {

/// The value as text, as Jinja2's soft_str gives it.
std::string as_text(const Rules& rules, const Value& value, const char* filter) {
  if (value.is<Text>()) {
    const std::string& text = plain_text(value, filter);
    rules.meter.text(text.size());
    return text;
  }
  return to_text(rules, value);
}

Value filter_tojson(const Rules& rules, const Value& value, const Arguments& arguments) {
  JsonStyle style;
  const auto set_indent = [&](const Value* indent) {
    if (!indent || indent->is<None>()) return;
    style.has_indent = true;
    style.item_separator = ",";
    if (indent->text()) {
      style.indent = *indent->text();
      return;
    }
    int64_t width = 0;
    if (!get_integer(*indent, width)) fail("tojson: indent is a number or a text");
    if (width > 1000) fail("tojson: the indent is too wide");
    style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  };
  if (!rules.options.transformers) {
    const Bound bound("tojson", arguments, {"indent"});
    set_indent(bound.get(0));
    style.ascii = true;
    style.sorted = true;
    std::string json = to_json(rules, value, style);
    for (const auto& [mark, name] :
         {std::pair{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}, {"'", "\\u0027"}}) {
      json = replace_text(json, mark, name, -1);
    }
    return make_text(std::move(json), true);
  }
  const Bound bound("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  style.ascii = bound.flag(rules, 0, false);
  style.sorted = bound.flag(rules, 3, false);
  set_indent(bound.get(1));
  if (const Value* separators = bound.get(2); separators && !separators->is<None>()) {
    const Sequence* pair = separators->sequence();
    if (!pair || pair->items.size() != 2) fail("tojson: separators are two texts");
    style.item_separator = plain_text(pair->items[0], "tojson");
    style.key_separator = plain_text(pair->items[1], "tojson");
  }
  return make_text(to_json(rules, value, style));
}

Value filter_trim(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("trim", arguments, {"chars"});
  const std::string text = as_text(rules, value, "trim");
  return make_text(std::string(strip(text, Side::kBoth, bound.text(0))));
}

Value filter_length(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("length", arguments, {});
  return Value(length_of(rules, value));
}

Value filter_upper(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("upper", arguments, {});
  return make_text(to_upper(as_text(rules, value, "upper")));
}

Value filter_lower(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("lower", arguments, {});
  return make_text(to_lower(as_text(rules, value, "lower")));
}

Value filter_capitalize(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("capitalize", arguments, {});
  return make_text(capitalize(as_text(rules, value, "capitalize")));
}

/// Unlike str.title(): only white space, - and opening brackets end a word.
Value filter_title(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("title", arguments, {});
  const std::string text = as_text(rules, value, "title");
  std::string result;
  size_t begin = 0;  // Of a word or of what stands between words.
  const auto ends_word = [](std::string_view c) {
    return (c.size() == 1 && std::string_view("-({[<").find(c) != kNowhere) ||
           is_python_space(characters(c)[0]);
  };
  while (begin < text.size()) {
    const std::string_view rest = std::string_view(text).substr(begin);
    const size_t first = byte_of_character(rest, 1);
    size_t end = first;
    const bool is_gap = ends_word(rest.substr(0, first));
    while (end < rest.size()) {
      const size_t next = end + byte_of_character(rest.substr(end), 1);
      if (ends_word(rest.substr(end, next - end)) != is_gap) break;
      end = next;
    }
    result += to_upper(rest.substr(0, first));
    result += to_lower(rest.substr(first, end - first));
    begin += end;
  }
  return make_text(std::move(result));
}

Value filter_replace(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("replace", arguments, {"old", "new", "count"});
  const std::string text = to_text(rules, value);
  const int64_t count =
      bound.get(2) && bound.get(2)->is<None>() ? int64_t{-1} : bound.integer(2, -1);
  const Arguments same{.positional = {make_text(to_text(rules, bound.need(0))),
                                      make_text(to_text(rules, bound.need(1))), Value(count)},
                       .named = {}};
  return call_method(rules, BoundMethod{make_text(text), "replace"}, same);
}

Value filter_default(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool falls_back =
      value.is<Undefined>() || (bound.flag(rules, 1, false) && !truth(rules, value));
  if (!falls_back) return value;
  return bound.get(0) ? *bound.get(0) : make_text("");
}

Value filter_string(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("string", arguments, {});
  return value.is<Text>() ? value : make_text(to_text(rules, value));
}

/// The number a text spells as Python's int() and float() read it.
bool parse_integer(std::string_view text, int64_t& result) {
  text = strip(text, Side::kBoth);
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return false;
  result = 0;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    if (static_cast<uint8_t>(c) >= 0x80) fail("int of digits beyond ASCII is not supported");
    if (c < '0' || c > '9') return false;
    after_digit = true;
    if (__builtin_mul_overflow(result, 10, &result) ||
        __builtin_add_overflow(result, c - '0', &result)) {
      fail("int: a number of more than 64 bits");
    }
  }
  if (is_negative) result = -result;
  return after_digit;
}

bool parse_float(std::string_view text, double& result) {
  std::string digits;
  char before = ' ';
  text = strip(text, Side::kBoth);
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<uint8_t>(c) >= 0x80) fail("float of digits beyond ASCII is not supported");
    const auto is_digit = [](char each) { return each >= '0' && each <= '9'; };
    if (c == '_' && is_digit(before) && i + 1 < text.size() && is_digit(text[i + 1])) continue;
    if (c == 'x' || c == 'X' || c == '(' || is_python_space(static_cast<uint32_t>(c))) return false;
    digits += c;
    before = c;
  }
  if (digits.empty()) return false;
  char* end = nullptr;
  result = std::strtod(digits.c_str(), &end);
  return end == digits.c_str() + digits.size();
}

Value filter_int(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  if (bound.integer(1, 10) != 10) fail("int: only base 10 is supported");
  const Value otherwise = bound.get(0) ? *bound.get(0) : Value(int64_t{0});
  require_defined_if_strict(rules, value);
  int64_t integer = 0;
  if (get_integer(value, integer)) return Value(integer);
  double number = 0;
  if (const std::string* text = value.text()) {
    if (parse_integer(*text, integer)) return Value(integer);
    if (!parse_float(*text, number)) return otherwise;
  } else if (const auto* given = value.as<double>()) {
    number = *given;
    if (std::isinf(number)) fail("int of an infinite number");
  } else {
    require_defined(value);
    return otherwise;
  }
  if (!std::isfinite(number)) return otherwise;
  if (std::abs(number) >= 9.2e18) fail("int: a number of more than 64 bits");
  return Value(static_cast<int64_t>(number));
}

Value filter_float(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  require_defined_if_strict(rules, value);
  if (is_number(value)) return Value(to_double(value));
  double number = 0;
  if (value.text() && parse_float(*value.text(), number)) return Value(number);
  if (!value.text()) require_defined(value);
  return bound.get(0) ? *bound.get(0) : Value(0.0);
}

Value filter_abs(const Rules&, const Value& value, const Arguments& arguments) {
  Bound("abs", arguments, {});
  if (const auto* number = value.as<double>()) return Value(std::abs(*number));
  int64_t integer = 0;
  if (get_integer(value, integer)) return integer < 0 ? negative(value) : Value(integer);
  require_defined(value);
  fail(fmt::format("abs of a {}", type_name(value)));
}

Value filter_round(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string method = bound.text(1).value_or("common");
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("round: the method is common, ceil or floor");
  }
  if (!is_number(value)) {
    require_defined(value);
    fail(fmt::format("round of a {}", type_name(value)));
  }
  if (precision < 0 || precision > 100) fail("round: a precision outside 0 to 100");
  const double number = to_double(value);
  if (method == "common") {
    int64_t integer = 0;
    if (get_integer(value, integer)) return Value(integer);
    if (!std::isfinite(number)) return value;
    // Decimal digits, correctly rounded, as Python does it.
    const std::string digits = fmt::format("{:.{}f}", number, precision);
    return Value(std::strtod(digits.c_str(), nullptr));
  }
  const Value scale = arithmetic(rules, "**", Value(int64_t{10}), Value(precision));
  const double scaled = to_double(arithmetic(rules, "*", value, scale));
  if (!std::isfinite(scaled)) fail("round of an infinite number");
  const double whole = method == "ceil" ? std::ceil(scaled) : std::floor(scaled);
  if (std::abs(whole) >= 9e15) fail("round: the number is too large");
  return arithmetic(rules, "/", Value(static_cast<int64_t>(whole)), scale);
}

Value filter_safe(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("safe", arguments, {});
  return make_text(to_text(rules, value), true);
}

Value filter_escape(const Rules& rules, const Value& value, const Arguments& arguments) {
  Bound("escape", arguments, {});
  const auto* text = value.as<Text>();
  if (text && text->is_safe) return value;
  std::string escaped = escape(to_text(rules, value));
  rules.meter.text(escaped.size());
  return make_text(std::move(escaped), true);
}

Value filter_indent(const Rules& rules, const Value& value, const Arguments& arguments) {
  const Bound bound("indent", arguments, {"width", "first", "blank"});
  std::string indent(4, ' ');
  if (const Value* width = bound.get(0); width && width->text()) {
    indent = *width->text();
  } else if (width) {
    if (bound.integer(0, 4) > 10'000) fail("indent: the width is too large");
    indent.assign(static_cast<size_t>(std::max<int64_t>(bound.integer(0, 4), 0)), ' ');
  }
  const std::string text = plain_text(value, "indent") + "\n";
  const bool blank = bound.flag(rules, 2, false);
  std::string result = bound.flag(rules, 1, false) ? indent : "";
  bool is_first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!is_first) {
      result += '\n';
      if (blank || !line.empty()) result += indent;
    }
    is_first = false;
    result += line;
    if (result.size() > Meter::kMaxText) break;
  }
  rules.meter.text(result.size());
  return make_text(std::move(result));
}

Value filter_format(const Rules& rules, const Value& value, const Arguments& arguments) {
  if (!arguments.named.empty()) fail("format: named arguments are not supported");
  std::vector<Value> values = arguments.positional;
  return make_text(format_percent(rules, as_text(rules, value, "format"),
                                  make_sequence(Sequence::kTuple, std::move(values), rules.meter)));
}

}  // namespace

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> filters = {
      {"tojson", filter_tojson},   {"trim", filter_trim},
      {"length", filter_length},   {"count", filter_length},
      {"upper", filter_upper},     {"lower", filter_lower},
      {"title", filter_title},     {"capitalize", filter_capitalize},
      {"replace", filter_replace}, {"default", filter_default},
      {"d", filter_default},       {"string", filter_string},
      {"int", filter_int},         {"float", filter_float},
      {"abs", filter_abs},         {"round", filter_round},
      {"safe", filter_safe},       {"escape", filter_escape},
      {"e", filter_escape},        {"indent", filter_indent},
      {"format", filter_format}};
  const auto found = filters.find(name);
  return found != filters.end() ? found->second : find_list_filter(name);
}

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

}  // namespace atl::text::jinja
