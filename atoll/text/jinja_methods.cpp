#include "atoll/text/jinja_methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/text/jinja_operators.h"
#include "atoll/text/python_text.h"
#include "atoll/text/unicode_classes.h"

namespace atl::text::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

bool is_one_of(Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// What there is, and what Python has besides: a template that asks for that is refused, where one
// that asks for any other name gets an undefined value.
const Names kTextMethods = {
    "strip",        "lstrip",       "rstrip",    "split",     "rsplit", "splitlines", "startswith",
    "endswith",     "replace",      "upper",     "lower",     "title",  "capitalize", "join",
    "find",         "rfind",        "index",     "rindex",    "count",  "isdigit",    "isalpha",
    "isspace",      "isupper",      "islower",   "format",    "zfill",  "ljust",      "rjust",
    "removeprefix", "removesuffix", "partition", "rpartition"};
const Names kOtherTextMethods = {"casefold",     "center",    "encode",      "expandtabs",
                                 "format_map",   "isalnum",   "isascii",     "isdecimal",
                                 "isidentifier", "isnumeric", "isprintable", "istitle",
                                 "maketrans",    "swapcase",  "translate"};
const Names kMappingMethods = {"get", "items", "keys", "values", "copy"};
const Names kOtherMappingMethods = {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"};
const Names kSequenceMethods = {"index", "count", "copy"};
const Names kOtherSequenceMethods = {"append",  "clear", "extend", "insert", "pop", "remove",
                                     "reverse", "sort",  "start",  "stop",   "step"};
const Names kNumberAttributes = {
    "real",       "imag",       "numerator",       "denominator", "conjugate",
    "bit_length", "bit_count",  "to_bytes",        "from_bytes",  "hex",
    "fromhex",    "is_integer", "as_integer_ratio"};

[[noreturn]] void refuse(const Value& value, const std::string& name) {
  fail(fmt::format("the method {} of a {} is not supported", name, type_name(value)));
}

Value text_list(const Rules& rules, const std::vector<std::string_view>& parts) {
  rules.meter.items(parts.size());
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    rules.meter.text(part.size());
    items.push_back(make_text(std::string(part)));
  }
  return make_sequence(Sequence::kList, std::move(items), rules.meter);
}

/// startswith and endswith take one text or a tuple of them.
bool has_end(const Value& affix, const auto& fits) {
  if (affix.text()) return fits(*affix.text());
  const Sequence* sequence = affix.sequence();
  if (!sequence || sequence->kind != Sequence::kTuple) {
    fail(fmt::format("startswith and endswith need a text or a tuple of texts, not a {}",
                     type_name(affix)));
  }
  return std::ranges::any_of(sequence->items, [&](const Value& each) {
    return fits(plain_text(each, "startswith or endswith"));
  });
}

std::string joined(const Rules& rules, const std::string& separator, const Value& parts) {
  std::string result;
  bool is_first = true;
  for (const Value& part : iterate(rules, parts)) {
    if (!is_first) result += separator;
    is_first = false;
    result += plain_text(part, "join");
    if (result.size() > Meter::kMaxText) break;
  }
  rules.meter.text(result.size());
  return result;
}

std::string replaced(const Rules& rules, const std::string& text, const std::string& from,
                     const std::string& to, int64_t max_count) {
  const size_t count = count_text(text, from);
  if (!to.empty() && count > Meter::kMaxText / to.size()) rules.meter.text(Meter::kMaxText + 1);
  rules.meter.text(text.size() + count * to.size());
  return replace_text(text, from, to, max_count);
}

/// str.format with {}, {0} and {name}.
std::string format_braces(const Rules& rules, const std::string& format,
                          const Arguments& arguments) {
  std::string result;
  size_t next = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      result += c;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      result += format[at++];
      continue;
    }
    const size_t end = c == '{' ? format.find('}', at) : std::string::npos;
    if (end == std::string::npos) fail("format: a single { or }");
    const std::string field = format.substr(at + 1, end - at - 1);
    at = end;
    if (field.find_first_of(".[!:{") != std::string::npos) {
      fail(fmt::format("format: the field {{{}}} is not supported", field));
    }
    const Value* value = nullptr;
    if (field.empty() || field.find_first_not_of("0123456789") == std::string::npos) {
      const size_t place = field.empty() ? next++ : std::stoul(field.substr(0, 4));
      if (place < arguments.positional.size()) value = &arguments.positional[place];
    }
    for (const auto& [name, each] : arguments.named) {
      if (name == field) value = &each;
    }
    if (!value) fail(fmt::format("format: nothing is given for {{{}}}", field));
    result += to_text(rules, *value);
    rules.meter.text(result.size());
  }
  return result;
}

bool all_are(const std::string& text, const auto& is) {
  return !text.empty() && std::ranges::all_of(characters(text), is);
}

bool is_digit(uint32_t code) {
  if (code < 128) return code >= '0' && code <= '9';
  if (char_class(char_class_table(), code) == CharClass::kNumber) {
    fail("isdigit of digits beyond ASCII is not supported");
  }
  return false;
}

std::string padded(const Rules& rules, const std::string& text, const std::string& name,
                   const Arguments& arguments) {
  const Bound bound(name, arguments, name == "zfill" ? Names{""} : Names{"", ""});
  bound.need(0);
  const auto width = static_cast<size_t>(std::max<int64_t>(bound.integer(0, 0), 0));
  const size_t size = count_characters(text);
  if (width <= size) return text;
  std::string fill = "0";
  if (name != "zfill") fill = bound.text(1).value_or(" ");
  if (count_characters(fill) != 1) fail(name + ": the fill is one character");
  if (width > Meter::kMaxText / 4) rules.meter.text(Meter::kMaxText + 1);
  std::string padding;
  for (size_t i = size; i < width; ++i) padding += fill;
  rules.meter.text(padding.size() + text.size());
  if (name == "ljust") return text + padding;
  const bool has_sign = name == "zfill" && !text.empty() && (text[0] == '-' || text[0] == '+');
  return has_sign ? text[0] + padding + text.substr(1) : padding + text;
}

Value partition(const Rules& rules, const std::string& text, const Arguments& arguments,
                bool from_right) {
  const Bound bound("partition", arguments, {""});
  const std::string separator = plain_text(bound.need(0), "partition");
  if (separator.empty()) fail("partition: the separator is empty");
  const size_t found = from_right ? find_last_text(text, separator) : find_text(text, separator);
  std::vector<Value> parts;
  if (found == kNowhere) {
    parts = {make_text(text), make_text(""), make_text("")};
    if (from_right) std::swap(parts[0], parts[2]);
  } else {
    parts = {make_text(text.substr(0, found)), make_text(separator),
             make_text(text.substr(found + separator.size()))};
  }
  return make_sequence(Sequence::kTuple, std::move(parts), rules.meter);
}

Value find_in_text(const Rules& rules, const std::string& text, const std::string& name,
                   const Arguments& arguments) {
  const Bound bound(name, arguments, {""});
  const std::string& part = plain_text(bound.need(0), name.c_str());
  rules.meter.text(part.size());
  if (name == "count") return Value(static_cast<int64_t>(count_text(text, part)));
  const bool from_right = name[0] == 'r';
  const size_t found = from_right ? find_last_text(text, part) : find_text(text, part);
  if (found == kNowhere && name.ends_with("index")) fail("index: the part is not in the text");
  if (found == kNowhere) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(count_characters(std::string_view(text).substr(0, found))));
}

Value split_text(const Rules& rules, const std::string& text, const std::string& name,
                 const Arguments& arguments) {
  const Bound bound(name, arguments, {"sep", "maxsplit"});
  const std::optional<std::string> separator = bound.text(0);
  if (separator && separator->empty()) fail(name + ": the separator is empty");
  const int64_t max_splits = bound.integer(1, -1);
  return text_list(rules, name == "split" ? split(text, separator, max_splits)
                                          : split_right(text, separator, max_splits));
}

std::string stripped(const std::string& text, const std::string& name, const Arguments& arguments) {
  const Bound bound(name, arguments, {""});
  const Side side = name == "strip" ? Side::kBoth : name == "lstrip" ? Side::kLeft : Side::kRight;
  return std::string(strip(text, side, bound.text(0)));
}

std::string without_affix(const std::string& text, const std::string& name,
                          const Arguments& arguments) {
  const Bound bound(name, arguments, {""});
  const std::string& affix = plain_text(bound.need(0), name.c_str());
  if (name == "removeprefix") {
    return text.starts_with(affix) ? text.substr(affix.size()) : text;
  }
  return text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text;
}

/// Methods of a text without arguments; false where `name` is none of them.
bool call_simple(const std::string& text, const std::string& name, Value& result) {
  const auto* classes = char_class_table();
  if (name == "upper") {
    result = make_text(to_upper(text));
  } else if (name == "lower") {
    result = make_text(to_lower(text));
  } else if (name == "title") {
    result = make_text(to_title(text));
  } else if (name == "capitalize") {
    result = make_text(capitalize(text));
  } else if (name == "isdigit") {
    result = Value(all_are(text, is_digit));
  } else if (name == "isalpha") {
    result = Value(all_are(
        text, [&](uint32_t code) { return char_class(classes, code) == CharClass::kLetter; }));
  } else if (name == "isspace") {
    result = Value(all_are(text, is_python_space));
  } else if (name == "isupper") {
    result = Value(is_upper(text));
  } else if (name == "islower") {
    result = Value(is_lower(text));
  } else {
    return false;
  }
  return true;
}

Value call_text(const Rules& rules, const std::string& text, const std::string& name,
                const Arguments& arguments) {
  rules.meter.text(text.size());
  Value result;
  if (call_simple(text, name, result)) {
    Bound(name, arguments, {});
    return result;
  }
  if (name.ends_with("strip")) return make_text(stripped(text, name, arguments));
  if (name == "split" || name == "rsplit") return split_text(rules, text, name, arguments);
  if (name == "splitlines") {
    const Bound bound(name, arguments, {"keepends"});
    return text_list(rules, split_lines(text, bound.flag(rules, 0, false)));
  }
  if (name == "startswith" || name == "endswith") {
    const Bound bound(name, arguments, {""});
    const bool begin = name == "startswith";
    return Value(has_end(bound.need(0), [&](const std::string& affix) {
      return begin ? text.starts_with(affix) : text.ends_with(affix);
    }));
  }
  if (name == "replace") {
    const Bound bound(name, arguments, {"", "", ""});
    return make_text(replaced(rules, text, plain_text(bound.need(0), "replace"),
                              plain_text(bound.need(1), "replace"), bound.integer(2, -1)));
  }
  if (name == "join") {
    const Bound bound(name, arguments, {""});
    return make_text(joined(rules, text, bound.need(0)));
  }
  if (name == "format") return make_text(format_braces(rules, text, arguments));
  if (name.starts_with("remove")) return make_text(without_affix(text, name, arguments));
  if (name.ends_with("partition")) return partition(rules, text, arguments, name[0] == 'r');
  if (is_one_of({"zfill", "ljust", "rjust"}, name)) {
    return make_text(padded(rules, text, name, arguments));
  }
  return find_in_text(rules, text, name, arguments);
}

Value call_mapping(const Rules& rules, const Value& receiver, const std::string& name,
                   const Arguments& arguments) {
  const Mapping& mapping = *receiver.mapping();
  if (name == "get") {
    const Bound bound(name, arguments, {"", ""});
    const Value& wanted = bound.need(0);
    require_defined_if_strict(rules, wanted);
    const std::string key = key_of(wanted);
    if (key.empty() && !wanted.is<Undefined>()) {
      fail(fmt::format("a {} cannot be a dictionary's key", type_name(wanted)));
    }
    if (const Value* found = mapping.find(key)) return *found;
    return bound.get(1) ? *bound.get(1) : Value();
  }
  Bound(name, arguments, {});
  if (name == "copy") return receiver;
  std::vector<Value> items;
  for (const auto& [key, value] : mapping.entries) {
    items.push_back(name == "keys" ? key
                    : name == "values"
                        ? value
                        : make_sequence(Sequence::kTuple, {key, value}, rules.meter));
  }
  return make_sequence(Sequence::kView, std::move(items), rules.meter);
}

Value call_sequence(const Rules& rules, const Value& receiver, const std::string& name,
                    const Arguments& arguments) {
  if (name == "copy") {
    Bound(name, arguments, {});
    return receiver;
  }
  const Bound bound(name, arguments, {""});
  const Value& wanted = bound.need(0);
  int64_t count = 0;
  const std::vector<Value>& items = receiver.sequence()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equal(rules, items[i], wanted)) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") fail("index: the item is not in the list");
  return Value(count);
}

}  // namespace

Bound::Bound(std::string callee, const Arguments& arguments,
             std::initializer_list<std::string_view> parameters)
    : callee_(std::move(callee)), values_(parameters.size(), nullptr) {
  if (arguments.positional.size() > parameters.size()) {
    fail(fmt::format("{} takes at most {} arguments", callee_, parameters.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* place = std::ranges::find(parameters, name);
    if (place == parameters.end()) {
      fail(fmt::format("the argument {} of {} is not supported", name, callee_));
    }
    const Value*& slot = values_[static_cast<size_t>(place - parameters.begin())];
    if (slot) fail(fmt::format("the argument {} of {} is given twice", name, callee_));
    slot = &value;
  }
}

const Value& Bound::need(size_t place) const {
  if (!values_[place]) fail(fmt::format("{} lacks an argument", callee_));
  return *values_[place];
}

bool Bound::flag(const Rules& rules, size_t place, bool otherwise) const {
  return values_[place] ? truth(rules, *values_[place]) : otherwise;
}

int64_t Bound::integer(size_t place, int64_t otherwise) const {
  if (!values_[place]) return otherwise;
  int64_t integer = 0;
  if (!get_integer(*values_[place], integer)) {
    require_defined(*values_[place]);
    fail(fmt::format("{} needs a whole number, not a {}", callee_, type_name(*values_[place])));
  }
  return integer;
}

std::optional<std::string> Bound::text(size_t place) const {
  if (!values_[place] || values_[place]->is<None>()) return {};
  return plain_text(*values_[place], callee_.c_str());
}

bool has_method(const Value& value, const std::string& name) {
  const auto check = [&](const Names& there, const Names& others) {
    if (is_one_of(others, name)) refuse(value, name);
    return is_one_of(there, name);
  };
  if (value.is<Text>()) return check(kTextMethods, kOtherTextMethods);
  if (value.mapping()) return check(kMappingMethods, kOtherMappingMethods);
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->kind > Sequence::kRange) {
      if (is_one_of({"mapping", "isdisjoint", "send", "throw", "close"}, name) ||
          name.starts_with("gi_")) {
        refuse(value, name);
      }
      return false;
    }
    const bool is_list = sequence->kind == Sequence::kList;
    const bool is_there = is_one_of(kSequenceMethods, name) && (is_list || name != "copy");
    if (is_list || sequence->kind == Sequence::kRange) check({}, kOtherSequenceMethods);
    return is_there;
  }
  if (is_number(value)) return check({}, kNumberAttributes);
  if (value.is<const MacroValue*>() || value.is<Function>() ||
      value.is<std::shared_ptr<const BoundMethod>>()) {
    refuse(value, name);
  }
  return false;
}

Value call_method(const Rules& rules, const BoundMethod& method, const Arguments& arguments) {
  const Value& receiver = method.receiver;
  if (receiver.is<Text>()) {
    const std::string& text = plain_text(receiver, method.name.c_str());
    return call_text(rules, text, method.name, arguments);
  }
  if (receiver.mapping()) return call_mapping(rules, receiver, method.name, arguments);
  if (receiver.sequence()) return call_sequence(rules, receiver, method.name, arguments);
  Loop& loop = **receiver.as<Loop*>();
  if (method.name == "cycle") {
    if (arguments.positional.empty()) fail("loop.cycle needs values");
    if (!arguments.named.empty()) fail("loop.cycle takes no named arguments");
    return arguments.positional[loop.index0 % arguments.positional.size()];
  }
  if (!arguments.named.empty()) fail("loop.changed takes no named arguments");
  const bool is_same = loop.has_changed && std::ranges::equal(loop.changed, arguments.positional,
                                                              [&](const Value& a, const Value& b) {
                                                                return equal(rules, a, b);
                                                              });
  loop.has_changed = true;
  loop.changed = arguments.positional;
  return Value(!is_same);
}

Value loop_attribute(const Value& value, const Loop& loop, const std::string& name) {
  const auto index0 = static_cast<int64_t>(loop.index0);
  const int64_t length = std::ssize(loop.items);
  if (name == "index0") return Value(index0);
  if (name == "index") return Value(index0 + 1);
  if (name == "revindex0") return Value(length - index0 - 1);
  if (name == "revindex") return Value(length - index0);
  if (name == "length") return Value(length);
  if (name == "first") return Value(index0 == 0);
  if (name == "last") return Value(index0 + 1 == length);
  if (name == "depth0") return Value(int64_t{0});
  if (name == "depth") return Value(int64_t{1});
  if (name == "previtem") {
    return index0 > 0 ? loop.items[loop.index0 - 1] : make_undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index0 + 1 < length ? loop.items[loop.index0 + 1]
                               : make_undefined("there is no next item");
  }
  if (name == "cycle" || name == "changed") {
    return Value(std::make_shared<const BoundMethod>(BoundMethod{value, name}));
  }
  return make_undefined(fmt::format("loop has no attribute '{}'", name));
}

}  // namespace atl::text::jinja
