// Python's "..." % values, as far as templates use it: %s %r %d %i %f %x %%, with flags, width and
// precision.
#include <fmt/format.h>

#include <cmath>

#include "atoll/text/jinja_operators.h"
#include "atoll/text/python_text.h"

namespace atl::text::jinja {
namespace {

constexpr size_t kMaxWidth = 1000;

struct Field {
  bool left = false;
  bool zero = false;
  bool plus = false;
  bool space = false;
  size_t width = 0;
  int precision = -1;
  char type = 's';
};

size_t read_number(const std::string& format, size_t& at) {
  size_t number = 0;
  for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at) {
    number = number * 10 + static_cast<size_t>(format[at] - '0');
    if (number > kMaxWidth) fail("%: a width or precision above 1000");
  }
  return number;
}

Field read_field(const std::string& format, size_t& at) {
  Field field;
  for (; at < format.size(); ++at) {
    const char flag = format[at];
    if (flag == '-') {
      field.left = true;
    } else if (flag == '0') {
      field.zero = true;
    } else if (flag == '+') {
      field.plus = true;
    } else if (flag == ' ') {
      field.space = true;
    } else {
      break;
    }
  }
  field.width = read_number(format, at);
  if (at < format.size() && format[at] == '.') {
    ++at;
    field.precision = static_cast<int>(read_number(format, at));
  }
  if (at >= format.size()) fail("%: the format ends within a field");
  field.type = format[at++];
  return field;
}

std::string digits_of(const Field& field, const Value& value) {
  if (!is_number(value)) {
    require_defined(value);
    fail(fmt::format("%{} needs a number, not a {}", field.type, type_name(value)));
  }
  if (field.type == 'f') {
    const double number = to_double(value);
    if (!std::isfinite(number)) fail("%f of a number that is not finite is not supported");
    return fmt::format("{:.{}f}", number, field.precision < 0 ? 6 : field.precision);
  }
  if (field.precision >= 0) fail("%: a precision of a whole number is not supported");
  int64_t integer = 0;
  if (!get_integer(value, integer)) {
    const double number = to_double(value);
    if (field.type == 'x' || !(std::abs(number) < 9e18)) {
      fail(fmt::format("%{} needs a whole number", field.type));
    }
    integer = static_cast<int64_t>(number);
  }
  return field.type == 'x' ? fmt::format("{:x}", integer) : std::to_string(integer);
}

std::string number_text(const Field& field, const Value& value) {
  std::string digits = digits_of(field, value);
  std::string sign;
  if (digits[0] == '-') {
    sign = "-";
    digits.erase(0, 1);
  } else if (field.plus || field.space) {
    sign = field.plus ? "+" : " ";
  }
  const size_t size = sign.size() + digits.size();
  if (field.zero && !field.left && size < field.width) {
    digits.insert(0, field.width - size, '0');
  }
  return sign + digits;
}

std::string field_text(const Rules& rules, const Field& field, const Value& value) {
  if (field.type != 's' && field.type != 'r') {
    if (std::string_view("difx").find(field.type) == kNowhere) {
      fail(fmt::format("%{} is not supported", field.type));
    }
    return number_text(field, value);
  }
  if (value.is<Text>()) plain_text(value, "%");
  const std::string text = field.type == 's' ? to_text(rules, value) : repr(rules, value);
  if (field.precision < 0) return text;
  return text.substr(0, byte_of_character(text, static_cast<size_t>(field.precision)));
}

}  // namespace

std::string format_percent(const Rules& rules, const std::string& format, const Value& values) {
  const Sequence* sequence = values.sequence();
  const bool is_tuple = sequence && sequence->kind == Sequence::kTuple;
  const auto value_at = [&](size_t place) -> const Value& {
    if (place >= (is_tuple ? sequence->items.size() : 1)) fail("%: too few values");
    return is_tuple ? sequence->items[place] : values;
  };
  std::string result;
  size_t used = 0;
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      result += format[at++];
      continue;
    }
    ++at;
    if (at < format.size() && format[at] == '(') fail("%(name) is not supported");
    const Field field = read_field(format, at);
    if (field.type == '%') {
      result += '%';
      continue;
    }
    const std::string text = field_text(rules, field, value_at(used++));
    const size_t size = count_characters(text);
    const std::string padding(size < field.width ? field.width - size : 0, ' ');
    result += field.left ? text + padding : padding + text;
    rules.meter.text(result.size());
  }
  const bool may_stay = values.mapping() || (sequence && sequence->kind == Sequence::kList);
  if (used < (is_tuple ? sequence->items.size() : may_stay ? 0 : 1)) fail("%: too many values");
  return result;
}

}  // namespace atl::text::jinja
