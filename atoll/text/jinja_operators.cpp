#include "atoll/text/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "atoll/text/jinja_methods.h"
#include "atoll/text/python_text.h"

namespace atl::text::jinja {
namespace {

[[noreturn]] void refuse(const std::string& operation, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  fail(fmt::format("{} does not work for {} and {}", operation, type_name(a), type_name(b)));
}

[[noreturn]] void too_large() { fail("a whole number gets more than 64 bits"); }

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) too_large();
  }
  return Value(result);
}

Value of_integers(const std::string& operation, int64_t a, int64_t b) {
  int64_t result = 0;
  if (operation == "+") {
    if (__builtin_add_overflow(a, b, &result)) too_large();
  } else if (operation == "-") {
    if (__builtin_sub_overflow(a, b, &result)) too_large();
  } else if (operation == "*") {
    if (__builtin_mul_overflow(a, b, &result)) too_large();
  } else if (operation == "**") {
    return power(a, b);
  } else {
    if (b == 0) fail("division by zero");
    if (operation == "/") {
      constexpr int64_t kExact = int64_t{1} << 53;
      if (std::min(a, b) < -kExact || std::max(a, b) > kExact) {
        fail("dividing whole numbers beyond 2^53 is not supported");
      }
      return Value(static_cast<double>(a) / static_cast<double>(b));
    }
    if (b == -1) {
      if (operation == "%") return Value(int64_t{0});
      if (__builtin_sub_overflow(int64_t{0}, a, &result)) too_large();
      return Value(result);
    }
    const int64_t rest = a % b;
    const bool is_other_sign = rest != 0 && (rest < 0) != (b < 0);
    result = operation == "//" ? a / b - (is_other_sign ? 1 : 0) : rest + (is_other_sign ? b : 0);
  }
  return Value(result);
}

Value of_floats(const std::string& operation, double a, double b) {
  if (operation == "+") return Value(a + b);
  if (operation == "-") return Value(a - b);
  if (operation == "*") return Value(a * b);
  if (operation == "**") {
    if (a == 0 && b < 0) fail("0 to a negative power");
    if (a < 0 && std::isfinite(b) && b != std::floor(b)) fail("complex numbers are not supported");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("a power is too large");
    return Value(result);
  }
  if (b == 0) fail("division by zero");
  if (operation == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (operation == "%") return Value(rest != 0 ? rest : std::copysign(0.0, b));
  if (quotient == 0) return Value(std::copysign(0.0, a / b));
  const double whole = std::floor(quotient);
  return Value(quotient - whole > 0.5 ? whole + 1 : whole);
}

Value repeat(const Rules& rules, const Value& value, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (const auto* text = value.as<Text>()) {
    const size_t size = text->bytes->size();
    if (size > 0 && times > Meter::kMaxText / size) rules.meter.text(Meter::kMaxText + 1);
    rules.meter.text(size * times);
    std::string result;
    for (size_t i = 0; i < times && size > 0; ++i) result += *text->bytes;
    return make_text(std::move(result), text->is_safe);
  }
  const Sequence& sequence = *value.sequence();
  const size_t size = sequence.items.size();
  if (size > 0 && times > Meter::kMaxItems / size) rules.meter.items(Meter::kMaxItems + 1);
  std::vector<Value> items;
  for (size_t i = 0; i < times && size > 0; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
    rules.meter.items(size);
  }
  return make_sequence(sequence.kind, std::move(items), rules.meter);
}

/// Where one is marked safe, the other is escaped.
Value add_texts(const Rules& rules, const Text& a, const Text& b) {
  const bool is_safe = a.is_safe || b.is_safe;
  std::string result = is_safe && !a.is_safe ? escape(*a.bytes) : *a.bytes;
  result += is_safe && !b.is_safe ? escape(*b.bytes) : *b.bytes;
  rules.meter.text(result.size());
  return make_text(std::move(result), is_safe);
}

bool is_repeatable(const Value& value) {
  const Sequence* sequence = value.sequence();
  return value.is<Text>() || (sequence && sequence->kind <= Sequence::kTuple);
}

int64_t clamp_place(int64_t place, int64_t size, int64_t low, int64_t high) {
  if (place < 0) place += size;
  return std::clamp(place, low, high);
}

int64_t slice_part(const Value& value) {
  int64_t integer = 0;
  if (!get_integer(value, integer)) {
    require_defined(value);
    fail(fmt::format("a slice is cut by whole numbers, not by a {}", type_name(value)));
  }
  return integer;
}

}  // namespace

const std::string& plain_text(const Value& value, const char* what) {
  const auto* text = value.as<Text>();
  if (!text) {
    require_defined(value);
    fail(fmt::format("{} needs a text, not a {}", what, type_name(value)));
  }
  if (text->is_safe) {
    fail(fmt::format("{} of a text marked by safe or escape is not supported", what));
  }
  return *text->bytes;
}

Value arithmetic(const Rules& rules, const std::string& operation, const Value& a, const Value& b) {
  int64_t left = 0;
  int64_t right = 0;
  if (get_integer(a, left) && get_integer(b, right)) return of_integers(operation, left, right);
  if (is_number(a) && is_number(b)) return of_floats(operation, to_double(a), to_double(b));
  if (operation == "%" && a.text()) {
    return make_text(format_percent(rules, plain_text(a, "%"), b));
  }
  if (operation == "+" && a.text() && b.text()) {
    return add_texts(rules, *a.as<Text>(), *b.as<Text>());
  }
  if (operation == "+" && a.sequence() && b.sequence() && is_repeatable(a) &&
      a.sequence()->kind == b.sequence()->kind) {
    std::vector<Value> items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    return make_sequence(a.sequence()->kind, std::move(items), rules.meter);
  }
  if (operation == "*" && is_repeatable(a) && get_integer(b, right)) return repeat(rules, a, right);
  if (operation == "*" && is_repeatable(b) && get_integer(a, left)) return repeat(rules, b, left);
  refuse(operation, a, b);
}

Value negative(const Value& value) {
  int64_t integer = 0;
  if (get_integer(value, integer)) return of_integers("-", 0, integer);
  if (const auto* number = value.as<double>()) return Value(-*number);
  require_defined(value);
  fail(fmt::format("a {} has no negative", type_name(value)));
}

Value concatenate(const Rules& rules, std::span<const Value> parts) {
  std::string result;
  for (const Value& part : parts) result += to_text(rules, part);
  rules.meter.text(result.size());
  return make_text(std::move(result));
}

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : text) {
    constexpr std::string_view kMarks = "&<>'\"";
    constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t place = kMarks.find(c);
    if (place == kNowhere) {
      result += c;
    } else {
      result += kNames[place];
    }
  }
  return result;
}

Value attribute(const Value& value, const std::string& name) {
  require_defined(value);
  if (name.starts_with("__") && name.ends_with("__")) {
    fail(fmt::format("the attribute {} is not supported", name));
  }
  if (const auto* space = value.as<Namespace*>()) {
    const auto found = (*space)->attributes.find(name);
    if (found != (*space)->attributes.end()) return found->second;
  } else if (const auto* loop = value.as<Loop*>()) {
    return loop_attribute(value, **loop, name);
  } else if (has_method(value, name)) {
    return Value(std::make_shared<const BoundMethod>(BoundMethod{value, name}));
  } else if (const Mapping* mapping = value.mapping()) {
    if (const Value* found = mapping->find("s" + name)) return *found;
  }
  return make_undefined(fmt::format("'{}' has no attribute '{}'", type_name(value),
                                    std::string_view(name).substr(0, 100)));
}

Value item(const Rules& rules, const Value& value, const Value& place) {
  require_defined(value);
  const std::string* name = place.text();
  if (const Mapping* mapping = value.mapping()) {
    require_defined_if_strict(rules, place);
    const std::string key = key_of(place);
    if (const Value* found = key.empty() ? nullptr : mapping->find(key)) return *found;
    if (name && has_method(value, *name)) return attribute(value, *name);
    return make_undefined(fmt::format("the dictionary has no key {}", is_number(place) || name
                                                                          ? repr(rules, place)
                                                                          : "of its type"));
  }
  int64_t index = 0;
  const Sequence* sequence = value.sequence();
  const bool has_places = value.text() || (sequence && sequence->kind <= Sequence::kRange);
  if (has_places && get_integer(place, index)) {
    const int64_t size = length_of(rules, value);
    if (index < 0) index += size;
    if (index < 0 || index >= size) {
      return make_undefined(fmt::format("there is no item {} of {}", index, size));
    }
    if (sequence) return sequence->items[static_cast<size_t>(index)];
    const auto* text = value.as<Text>();
    const size_t begin = byte_of_character(*text->bytes, static_cast<size_t>(index));
    const std::string_view rest = std::string_view(*text->bytes).substr(begin);
    return make_text(std::string(rest.substr(0, byte_of_character(rest, 1))), text->is_safe);
  }
  if (name) return attribute(value, *name);
  return make_undefined(fmt::format("a {} has no such item", type_name(value)));
}

Value slice(const Rules& rules, const Value& value, const Value* begin, const Value* end,
            const Value* step) {
  require_defined(value);
  const auto given = [](const Value* part) { return part && !part->is<None>(); };
  const int64_t stride = given(step) ? slice_part(*step) : 1;
  const Sequence* sequence = value.sequence();
  const auto* text = value.as<Text>();
  if (!text && !(sequence && sequence->kind <= Sequence::kRange)) {
    fail(fmt::format("a {} cannot be sliced", type_name(value)));
  }
  if (stride == 0) fail("a slice's step must not be 0");
  const int64_t size = length_of(rules, value);
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? size : size - 1;
  const int64_t first = given(begin) ? clamp_place(slice_part(*begin), size, low, high)
                        : stride > 0 ? 0
                                     : size - 1;
  const int64_t last = given(end)   ? clamp_place(slice_part(*end), size, low, high)
                       : stride > 0 ? size
                                    : -1;
  if (text && stride == 1) {
    const size_t from = byte_of_character(*text->bytes, static_cast<size_t>(first));
    const std::string_view rest = std::string_view(*text->bytes).substr(from);
    const auto count = static_cast<size_t>(std::max<int64_t>(last - first, 0));
    return make_text(std::string(rest.substr(0, byte_of_character(rest, count))), text->is_safe);
  }
  const std::vector<Value> all = iterate(rules, value);
  std::vector<Value> items;
  for (int64_t at = first; stride > 0 ? at < last : at > last;) {
    items.push_back(all[static_cast<size_t>(at)]);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (!text) return make_sequence(sequence->kind, std::move(items), rules.meter);
  std::string joined;
  for (const Value& each : items) joined += *each.text();
  return make_text(std::move(joined), text->is_safe);
}

}  // namespace atl::text::jinja
