// JSON to a template's values and back: `tojson`, as Python's json.dumps writes it.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "atoll/text/jinja_value.h"
#include "atoll/text/utf8.h"

namespace atl::text::jinja {

Value from_json(const nlohmann::ordered_json& json, Meter& meter, int depth) {
  if (depth > Meter::kMaxNesting) fail("the variables lie too deep in each other");
  switch (json.type()) {
    case nlohmann::json::value_t::null:
      return Value();
    case nlohmann::json::value_t::boolean:
      return Value(json.get<bool>());
    case nlohmann::json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case nlohmann::json::value_t::number_unsigned:
      if (!std::in_range<int64_t>(json.get<uint64_t>())) {
        fail("a variable holds a whole number of more than 64 bits");
      }
      return Value(json.get<int64_t>());
    case nlohmann::json::value_t::number_float:
      return Value(json.get<double>());
    case nlohmann::json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      meter.text(text.size());
      if (valid_utf8_prefix(text) != text.size()) fail("a variable holds text that is not UTF-8");
      return make_text(text);
    }
    case nlohmann::json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(item, meter, depth + 1));
      return make_sequence(Sequence::kList, std::move(items), meter);
    }
    case nlohmann::json::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [key, item] : json.items()) {
        if (valid_utf8_prefix(key) != key.size()) fail("a variable's name is not UTF-8");
        entries.emplace_back(make_text(key), from_json(item, meter, depth + 1));
      }
      return make_mapping(std::move(entries), meter);
    }
    default:
      fail("a variable is neither text, number, list nor object");
  }
}

namespace {

class JsonWriter {
 public:
  JsonWriter(const Rules& rules, const JsonStyle& style) : rules_(rules), style_(style) {}

  std::string write(const Value& value) {
    add(value, 0);
    return std::move(text_);
  }

 private:
  void put(std::string_view part) {
    text_ += part;
    rules_.meter.text(part.size());
    if (text_.size() > Meter::kMaxText) rules_.meter.text(text_.size());
  }

  void new_line(int depth) {
    if (!style_.has_indent) return;
    put("\n");
    for (int i = 0; i < depth; ++i) put(style_.indent);
  }

  void add(const Value& value, int depth) {
    rules_.meter.step();
    if (value.is<None>()) return put("null");
    if (const auto* flag = value.as<bool>()) return put(*flag ? "true" : "false");
    if (const auto* integer = value.as<int64_t>()) return put(std::to_string(*integer));
    if (const auto* number = value.as<double>()) return put(number_text(*number));
    if (const std::string* text = value.text()) return add_string(*text);
    if (const Mapping* mapping = value.mapping()) return add_mapping(*mapping, depth);
    const Sequence* sequence = value.sequence();
    if (!sequence || (sequence->kind != Sequence::kList && sequence->kind != Sequence::kTuple)) {
      fail(fmt::format("tojson: a {} has no JSON", type_name(value)));
    }
    put("[");
    bool is_first = true;
    for (const Value& item : sequence->items) {
      if (!is_first) put(style_.item_separator);
      is_first = false;
      new_line(depth + 1);
      add(item, depth + 1);
    }
    if (!is_first) new_line(depth);
    put("]");
  }

  void add_mapping(const Mapping& mapping, int depth) {
    const auto before = [&](const Value& a, const Value& b) {
      return style_.sorted && less(rules_, a, b);  // Equal ones stay in their order.
    };
    std::multimap<Value, const Value*, decltype(before)> entries(before);
    for (const auto& [key, value] : mapping.entries) entries.emplace(key, &value);
    put("{");
    bool is_first = true;
    for (const auto& [key, value] : entries) {
      if (!is_first) put(style_.item_separator);
      is_first = false;
      new_line(depth + 1);
      add_string(key_text(key));
      put(style_.key_separator);
      add(*value, depth + 1);
    }
    if (!is_first) new_line(depth);
    put("}");
  }

  static std::string number_text(double number) {
    if (std::isnan(number)) return "NaN";
    if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
    return float_text(number);
  }

  static std::string key_text(const Value& key) {
    if (const std::string* text = key.text()) return *text;
    if (key.is<None>()) return "null";
    if (const auto* flag = key.as<bool>()) return *flag ? "true" : "false";
    if (const auto* integer = key.as<int64_t>()) return std::to_string(*integer);
    if (const auto* number = key.as<double>()) return number_text(*number);
    fail(fmt::format("tojson: a {} cannot be a key", type_name(key)));
  }

  void add_string(std::string_view text) {
    put("\"");
    std::string quoted;
    for (size_t at = 0; at < text.size();) {
      const CodePoint character = decode_utf8(text.substr(at));
      add_character(character.value, text.substr(at, character.num_bytes), quoted);
      at += character.num_bytes;
    }
    put(quoted);
    put("\"");
  }

  void add_character(uint32_t code, std::string_view bytes, std::string& quoted) const {
    constexpr std::string_view kShort = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    const size_t place = code < 128 ? kShort.find(static_cast<char>(code)) : std::string_view::npos;
    if (place != std::string_view::npos) {
      quoted += '\\';
      quoted += kLetters[place];
    } else if (code >= 0x10000 && style_.ascii) {
      quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10),
                            0xdc00 + ((code - 0x10000) & 0x3ff));
    } else if (code < 0x20 || (code > 0x7e && style_.ascii)) {
      quoted += fmt::format("\\u{:04x}", code);
    } else {
      quoted += bytes;
    }
  }

  const Rules& rules_;
  const JsonStyle& style_;
  std::string text_;
};

}  // namespace

std::string to_json(const Rules& rules, const Value& value, const JsonStyle& style) {
  return JsonWriter(rules, style).write(value);
}

}  // namespace atl::text::jinja
