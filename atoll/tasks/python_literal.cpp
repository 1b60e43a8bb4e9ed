#include "atoll/tasks/python_literal.h"

#include <fmt/format.h>

#include <algorithm>

#include "atoll/base/error.h"
#include "atoll/base/number.h"
#include "atoll/text/utf8.h"

namespace atl::tasks {
namespace {

constexpr int kMaxDepth = 50;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class LiteralReader {
 public:
  LiteralReader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Json read() {
    Json value = read_value(0);
    skip_space();
    if (place_ < text_.size()) fail("something follows the value");
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    int64_t ignored = 0;
    const std::string shown = text::repair_utf8(text_.substr(0, 200), ignored);
    throw InputError(
        fmt::format("{}: not a Python list, string or number that is read here ({} at byte {}): {}",
                    where_, what, place_, shown));
  }

  char peek(size_t ahead = 0) const {
    return place_ + ahead < text_.size() ? text_[place_ + ahead] : '\0';
  }
  void skip_space() {
    place_ = std::min(text_.find_first_not_of(" \t\n\r\f", place_), text_.size());
  }
  bool take(std::string_view word) {
    if (!text_.substr(place_).starts_with(word)) return false;
    place_ += word.size();
    return true;
  }

  Json read_value(int depth) {
    if (depth > kMaxDepth) fail("nested too deep");
    skip_space();
    const char first = peek();
    if (first == '[') return read_items(depth, ']');
    if (first == '(') return read_items(depth, ')');
    if (first == '\'' || first == '"') return read_strings();
    if (take("True")) return true;
    if (take("False")) return false;
    if (take("None")) return nullptr;
    if (is_digit(first) || first == '-' || first == '+' || first == '.') return read_number();
    fail(place_ == text_.size() ? "the end" : fmt::format("'{}'", first));
  }

  Json read_items(int depth, char end) {
    ++place_;
    Json items = Json::array();
    bool has_comma = false;
    for (skip_space(); peek() != end; skip_space()) {
      items.push_back(read_value(depth + 1));
      skip_space();
      has_comma = peek() == ',';
      if (has_comma) ++place_;
      skip_space();
      if (!has_comma && peek() != end) fail("no comma");
    }
    ++place_;
    // (1) is 1; (1,) is a tuple.
    if (end == ')' && items.size() == 1 && !has_comma) return items[0];
    return items;
  }

  /// Strings beside each other are one.
  Json read_strings() {
    std::string text;
    while (peek() == '\'' || peek() == '"') {
      read_string(text);
      skip_space();
    }
    return text;
  }

  void read_string(std::string& text) {
    const std::string quote(1, peek());
    const std::string triple = quote + quote + quote;
    const bool is_long = take(triple);
    if (!is_long) ++place_;
    const std::string& end = is_long ? triple : quote;
    while (!take(end)) {
      if (place_ >= text_.size()) fail("a string without an end");
      const char c = text_[place_++];
      if (c == '\n' && !is_long) fail("a line end in a string");
      if (c == '\\') {
        read_escape(text);
      } else {
        text += c;
      }
    }
  }

  void read_escape(std::string& text) {
    if (place_ >= text_.size()) fail("a string without an end");
    const char c = text_[place_++];
    static constexpr std::string_view kLetters = "\\'\"abfnrtv";
    static constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      text += kMeanings[known];
    } else if (c == '\n') {
      return;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      text::append_utf8(text, read_code(c == 'x' ? 2 : c == 'u' ? 4 : 8, 16));
    } else if (c >= '0' && c <= '7') {
      --place_;
      size_t count = 1;
      while (count < 3 && peek(count) >= '0' && peek(count) <= '7') ++count;
      text::append_utf8(text, read_code(count, 8));
    } else if (c == 'N') {
      fail("a character by its name");
    } else {  // Python keeps what it does not know.
      text += '\\';
      text += c;
    }
  }

  uint32_t read_code(size_t num_digits, int base) {
    const std::string_view digits = text_.substr(place_, num_digits);
    const auto code = number_in<uint32_t>(digits, base);
    if (!code || digits.size() < num_digits) fail("a bad escape");
    if (*code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000)) fail("no such character");
    place_ += num_digits;
    return *code;
  }

  Json read_number() {
    const bool is_negative = peek() == '-';
    if (is_negative || peek() == '+') ++place_;
    const size_t begin = place_;
    while (
        is_digit(peek()) || peek() == '.' || peek() == 'e' || peek() == 'E' ||
        ((peek() == '-' || peek() == '+') && place_ > begin && (text_[place_ - 1] | 0x20) == 'e')) {
      ++place_;
    }
    const std::string_view digits = text_.substr(begin, place_ - begin);
    if (digits.find_first_of(".eE") == std::string_view::npos) {
      const bool is_zero = digits.find_first_not_of('0') == std::string_view::npos;
      const auto whole = number_in<int64_t>(digits);
      if (!whole || (digits[0] == '0' && !is_zero)) fail("a number");
      return is_negative ? -*whole : *whole;
    }
    const auto broken = number_in<double>(digits);
    if (!broken) fail("a number");
    return is_negative ? -*broken : *broken;
  }

  std::string_view text_;
  const std::string& where_;
  size_t place_ = 0;
};

}  // namespace

Json parse_python_literal(std::string_view text, const std::string& where) {
  return LiteralReader(text, where).read();
}

}  // namespace atl::tasks
