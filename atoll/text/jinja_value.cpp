#include "atoll/text/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "atoll/text/python_text.h"
#include "atoll/text/utf8.h"

namespace atl::text::jinja {
namespace {

int nesting_of(const Value& value) {
  if (const Sequence* sequence = value.sequence()) return sequence->nesting;
  if (const Mapping* mapping = value.mapping()) return mapping->nesting;
  if (const auto* method = value.as<std::shared_ptr<const BoundMethod>>()) {
    return nesting_of((*method)->receiver) + 1;
  }
  return 0;
}

int nesting_above(int below) {
  if (below >= Meter::kMaxNesting) {
    fail(fmt::format("lists lie more than {} deep in each other", Meter::kMaxNesting));
  }
  return below + 1;
}

/// The items to read; marks an iterator as read.
const std::vector<Value>& read(const Sequence& sequence) {
  if (sequence.kind == Sequence::kIterator) {
    if (sequence.is_used) {
      fail("what a filter like map or select gives can be read once only: put |list behind it");
    }
    sequence.is_used = true;
  }
  return sequence.items;
}

bool has_order_of_items(const Sequence& sequence) {
  return sequence.kind == Sequence::kList || sequence.kind == Sequence::kTuple;
}

[[noreturn]] void no_printing(const Value& value) {
  fail(fmt::format("a {} cannot be written as text (is |list missing?)", type_name(value)));
}

/// Of a number: 64 bits of mantissa hold every int64.
long double wide(const Value& value) {
  int64_t integer = 0;
  return get_integer(value, integer) ? static_cast<long double>(integer)
                                     : static_cast<long double>(*value.as<double>());
}

}  // namespace

void fail(const std::string& what) { throw Failure(what); }

void Meter::text(size_t bytes) {
  if (bytes > kMaxText) {
    fail(fmt::format("a text gets longer than {} MiB", kMaxText >> 20));
  }
  bytes_ += bytes;
  if (bytes_ > kMaxBytes) fail("the template reads and makes too much text");
}

void Meter::items(size_t count) {
  if (count > kMaxItems || (items_ += count) > kMaxItems) fail("the template's lists get too long");
}

Value make_text(std::string bytes, bool is_safe) {
  return Value(Text{std::make_shared<const std::string>(std::move(bytes)), is_safe});
}

Value make_undefined(std::string what, bool may_be_used) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(what)), may_be_used});
}

Value make_sequence(Sequence::Kind kind, std::vector<Value> items, Meter& meter) {
  meter.items(items.size() + 1);
  int below = 0;
  for (const Value& item : items) below = std::max(below, nesting_of(item));
  return Value(std::make_shared<const Sequence>(
      Sequence{kind, std::move(items), nesting_above(below), false}));
}

Value make_mapping(std::vector<std::pair<Value, Value>> entries, Meter& meter) {
  meter.items(4 * entries.size() + 1);
  Mapping mapping;
  int below = 0;
  for (auto& [key, value] : entries) {
    const std::string name = key_of(key);
    if (name.empty()) fail(fmt::format("a {} cannot be a dictionary's key", type_name(key)));
    meter.text(name.size());
    below = std::max({below, nesting_of(key), nesting_of(value)});
    const auto [place, is_new] = mapping.places.emplace(name, mapping.entries.size());
    if (is_new) {
      mapping.entries.emplace_back(std::move(key), std::move(value));
    } else {
      mapping.entries[place->second].second = std::move(value);
    }
  }
  mapping.nesting = nesting_above(below);
  return Value(std::make_shared<const Mapping>(std::move(mapping)));
}

const char* type_name(const Value& value) {
  if (const Sequence* sequence = value.sequence()) {
    constexpr const char* kNames[] = {"list", "tuple", "range", "dictionary view", "generator"};
    return kNames[sequence->kind];
  }
  if (value.mapping()) return "dict";
  if (value.is<Undefined>()) return "Undefined";
  if (value.is<None>()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.is<Text>()) return "str";
  if (value.is<Namespace*>()) return "namespace";
  if (value.is<Loop*>()) return "loop";
  return value.is<const MacroValue*>() ? "macro" : "function";
}

bool get_integer(const Value& value, int64_t& integer) {
  if (const auto* flag = value.as<bool>()) {
    integer = *flag ? 1 : 0;
    return true;
  }
  if (const auto* number = value.as<int64_t>()) {
    integer = *number;
    return true;
  }
  return false;
}

bool is_number(const Value& value) {
  return value.is<bool>() || value.is<int64_t>() || value.is<double>();
}

double to_double(const Value& number) {
  int64_t integer = 0;
  if (get_integer(number, integer)) return static_cast<double>(integer);
  return *number.as<double>();
}

std::string key_of(const Value& value) {
  if (const std::string* text = value.text()) return "s" + *text;
  int64_t integer = 0;
  if (get_integer(value, integer)) return fmt::format("n{}", integer);
  if (const auto* number = value.as<double>()) {
    const bool is_whole = std::abs(*number) < 9e18 && *number == std::floor(*number);
    return is_whole ? fmt::format("n{}", static_cast<int64_t>(*number))
                    : fmt::format("f{}", *number);
  }
  if (value.is<None>()) return "N";
  const Sequence* sequence = value.sequence();
  if (!sequence || sequence->kind != Sequence::kTuple) return "";
  std::string key = "t";
  for (const Value& item : sequence->items) {
    const std::string part = key_of(item);
    if (part.empty()) return "";
    key += fmt::format("{}:{}", part.size(), part);
    if (key.size() > Meter::kMaxText) fail("a dictionary's key gets too long");
  }
  return key;
}

void fail_undefined(const Undefined& undefined) { fail(*undefined.what); }

void require_defined(const Value& value) {
  if (const auto* undefined = value.as<Undefined>()) fail_undefined(*undefined);
}

void require_defined_if_strict(const Rules& rules, const Value& value) {
  const auto* undefined = value.as<Undefined>();
  if (undefined && rules.options.strict_undefined && !undefined->may_be_used) {
    fail_undefined(*undefined);
  }
}

bool truth(const Rules& rules, const Value& value) {
  if (value.is<Undefined>()) {
    require_defined_if_strict(rules, value);
    return false;
  }
  if (value.is<None>()) return false;
  if (is_number(value)) return to_double(value) != 0;
  if (const std::string* text = value.text()) return !text->empty();
  if (const Mapping* mapping = value.mapping()) return !mapping->entries.empty();
  const Sequence* sequence = value.sequence();
  return !sequence || sequence->kind == Sequence::kIterator || !sequence->items.empty();
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string to_text(const Rules& rules, const Value& value) {
  if (const std::string* text = value.text()) {
    rules.meter.text(text->size());
    return *text;
  }
  if (value.is<Undefined>()) {
    require_defined_if_strict(rules, value);
    return "";
  }
  return repr(rules, value);
}

std::string repr(const Rules& rules, const Value& value) {
  rules.meter.step();
  if (value.is<Undefined>()) return "Undefined";
  if (value.is<None>()) return "None";
  if (const auto* flag = value.as<bool>()) return *flag ? "True" : "False";
  if (const auto* integer = value.as<int64_t>()) return std::to_string(*integer);
  if (const auto* number = value.as<double>()) return float_text(*number);
  if (const auto* text = value.as<Text>()) {
    if (text->is_safe) fail("a text marked as safe inside a list cannot be written");
    std::string quoted = quote(*text->bytes);
    rules.meter.text(quoted.size());
    return quoted;
  }
  std::string text;
  const auto add = [&](const std::string& part) {
    text += part;
    rules.meter.text(part.size());
    if (text.size() > Meter::kMaxText) rules.meter.text(text.size());
  };
  if (const Mapping* mapping = value.mapping()) {
    for (const auto& [key, item] : mapping->entries) {
      add((text.empty() ? "" : ", ") + repr(rules, key) + ": " + repr(rules, item));
    }
    return "{" + text + "}";
  }
  const Sequence* sequence = value.sequence();
  if (!sequence || !has_order_of_items(*sequence)) no_printing(value);
  for (const Value& item : sequence->items) add((text.empty() ? "" : ", ") + repr(rules, item));
  if (sequence->kind == Sequence::kList) return "[" + text + "]";
  return "(" + text + (sequence->items.size() == 1 ? ",)" : ")");
}

bool equal(const Rules& rules, const Value& a, const Value& b) {
  rules.meter.step();
  require_defined_if_strict(rules, a);
  require_defined_if_strict(rules, b);
  if (is_number(a) && is_number(b)) {
    int64_t left = 0;
    int64_t right = 0;
    const bool whole = get_integer(a, left) && get_integer(b, right);
    return whole ? left == right : wide(a) == wide(b);
  }
  if (a.text() && b.text()) {
    rules.meter.text(std::min(a.text()->size(), b.text()->size()));
    return *a.text() == *b.text();
  }
  if (a.mapping() && b.mapping()) {
    if (a.mapping()->entries.size() != b.mapping()->entries.size()) return false;
    return std::ranges::all_of(a.mapping()->entries, [&](const auto& entry) {
      const Value* other = b.mapping()->find(key_of(entry.first));
      return other && equal(rules, entry.second, *other);
    });
  }
  if (a.sequence() && b.sequence()) {
    const Sequence& left = *a.sequence();
    const Sequence& right = *b.sequence();
    if (left.kind > Sequence::kRange || right.kind > Sequence::kRange) {
      fail("views and generators cannot be compared: put |list behind them");
    }
    return left.kind == right.kind &&
           std::ranges::equal(left.items, right.items,
                              [&](const Value& x, const Value& y) { return equal(rules, x, y); });
  }
  if (a.is<None>() || a.is<Undefined>())
    return (a.is<None>() && b.is<None>()) || (a.is<Undefined>() && b.is<Undefined>());
  if (const auto* left = a.as<Namespace*>(); left && b.is<Namespace*>()) {
    return *left == *b.as<Namespace*>();
  }
  if (const auto* left = a.as<const MacroValue*>(); left && b.is<const MacroValue*>()) {
    return *left == *b.as<const MacroValue*>();
  }
  return false;
}

bool less(const Rules& rules, const Value& a, const Value& b) {
  rules.meter.step();
  require_defined(a);
  require_defined(b);
  if (is_number(a) && is_number(b)) {
    int64_t left = 0;
    int64_t right = 0;
    if (get_integer(a, left) && get_integer(b, right)) return left < right;
    return wide(a) < wide(b);
  }
  if (a.text() && b.text()) {  // UTF-8's bytes have the order of the code points.
    rules.meter.text(std::min(a.text()->size(), b.text()->size()));
    return *a.text() < *b.text();
  }
  const Sequence* left = a.sequence();
  const Sequence* right = b.sequence();
  if (left && right && left->kind == right->kind && has_order_of_items(*left)) {
    const size_t shared = std::min(left->items.size(), right->items.size());
    for (size_t i = 0; i < shared; ++i) {
      if (equal(rules, left->items[i], right->items[i])) continue;
      return less(rules, left->items[i], right->items[i]);
    }
    return left->items.size() < right->items.size();
  }
  fail(fmt::format("a {} and a {} have no order", type_name(a), type_name(b)));
}

bool contains(const Rules& rules, const Value& container, const Value& item) {
  if (const std::string* text = container.text()) {
    if (!item.text()) {
      fail(fmt::format("only a text can be in a text, not a {}", type_name(item)));
    }
    rules.meter.text(text->size());
    return find_text(*text, *item.text()) != std::string::npos;
  }
  if (const Mapping* mapping = container.mapping()) {
    const std::string key = key_of(item);
    if (key.empty() && !item.is<Undefined>()) {
      fail(fmt::format("a {} cannot be a dictionary's key", type_name(item)));
    }
    require_defined_if_strict(rules, item);
    return mapping->find(key) != nullptr;
  }
  if (container.is<Undefined>()) {
    require_defined_if_strict(rules, container);
    return false;
  }
  const Sequence* sequence = container.sequence();
  if (!sequence) fail(fmt::format("nothing can be in a {}", type_name(container)));
  return std::ranges::any_of(read(*sequence),
                             [&](const Value& each) { return equal(rules, item, each); });
}

std::vector<Value> iterate(const Rules& rules, const Value& value) {
  std::vector<Value> items;
  if (const Sequence* sequence = value.sequence()) {
    items = read(*sequence);
  } else if (const Mapping* mapping = value.mapping()) {
    for (const auto& [key, item] : mapping->entries) items.push_back(key);
  } else if (const std::string* text = value.text()) {
    rules.meter.items(text->size());
    for (size_t at = 0; at < text->size();) {
      const size_t size = decode_utf8(std::string_view(*text).substr(at)).num_bytes;
      items.push_back(make_text(text->substr(at, size)));
      at += size;
    }
  } else if (value.is<Undefined>()) {
    require_defined_if_strict(rules, value);
  } else {
    fail(fmt::format("a {} has no items", type_name(value)));
  }
  rules.meter.items(items.size());
  return items;
}

int64_t length_of(const Rules& rules, const Value& value) {
  if (const std::string* text = value.text()) {
    rules.meter.text(text->size());
    return static_cast<int64_t>(count_characters(*text));
  }
  if (const Mapping* mapping = value.mapping()) return std::ssize(mapping->entries);
  if (value.is<Undefined>()) {
    require_defined_if_strict(rules, value);
    return 0;
  }
  if (const auto* loop = value.as<Loop*>()) return std::ssize((*loop)->items);
  const Sequence* sequence = value.sequence();
  if (!sequence || sequence->kind == Sequence::kIterator) {
    fail(fmt::format("a {} has no length", type_name(value)));
  }
  return std::ssize(sequence->items);
}

}  // namespace atl::text::jinja
