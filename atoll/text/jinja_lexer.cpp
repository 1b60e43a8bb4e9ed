#include "atoll/text/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "atoll/base/number.h"
#include "atoll/text/python_text.h"
#include "atoll/text/utf8.h"

namespace atl::text::jinja {
namespace {

constexpr size_t kMaxSource = size_t{1} << 20;  // 1 MiB; the longest known templates have 20 KB.

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// Line ends as "\n"; the last one goes unless it is to stay.
std::string normalized(std::string_view source, bool keep_trailing_newline) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!keep_trailing_newline && text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string source, const JinjaOptions& options)
      : source_(std::move(source)), options_(options) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t open = next_opening(at_);
      if (open == kNowhere) {
        add_text(rest());
        at_ = source_.size();
        break;
      }
      read_opening(open);
    }
    add(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool sees(std::string_view what) const { return rest().starts_with(what); }
  [[noreturn]] void fail_here(const std::string& what) const { throw SourceFailure(line_, what); }

  size_t next_opening(size_t from) const {
    for (size_t at = source_.find('{', from); at != kNowhere; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != kNowhere) {
        return at;
      }
    }
    return kNowhere;
  }

  void add(Token::Kind kind, std::string text) {
    tokens_.push_back({kind, std::move(text), Value(), line_});
  }
  void add_text(std::string_view text) {
    if (!text.empty()) add(Token::kText, std::string(text));
  }
  void skip(size_t count) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<int64_t>(at_),
                                    source_.begin() + static_cast<int64_t>(at_ + count), '\n'));
    at_ += count;
  }
  void skip_space() { skip(rest().size() - strip(rest(), Side::kLeft).size()); }

  /// The text before a tag, cut as the tag's sign ("-", "+" or 0) and the options want it.
  std::string_view before_tag(std::string_view text, char sign, bool is_print) const {
    if (sign == '-') return strip(text, Side::kRight);
    if (sign == '+' || !options_.lstrip_blocks || is_print) return text;
    const size_t line_begin = text.rfind('\n') + 1;  // 0 where there is none.
    if (line_begin == 0 && !line_starts_) return text;
    return strip(text.substr(line_begin), Side::kLeft).empty() ? text.substr(0, line_begin) : text;
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  void read_opening(size_t open) {
    const char kind = source_[open + 1];
    const char sign = sign_at(open + 2);
    const std::string_view text = rest().substr(0, open - at_);
    add_text(before_tag(text, sign, kind == '{'));
    skip(open - at_);
    if (kind == '%' && read_raw(open)) return;
    skip(sign ? 3 : 2);
    if (kind == '#') return read_comment();
    add(kind == '%' ? Token::kTagBegin : Token::kPrintBegin, "");
    read_tokens(kind == '%' ? "%}" : "}}");
    add(kind == '%' ? Token::kTagEnd : Token::kPrintEnd, "");
    read_closing(kind == '%' ? "%}" : "}}");
  }

  /// At a sign or the mark that ends a tag: takes it and what it strips.
  void read_closing(std::string_view mark) {
    const char sign = sees(mark) ? '\0' : source_[at_];
    skip(mark.size() + (sign ? 1 : 0));
    after_tag(sign, mark);
  }
  void after_tag(char sign, std::string_view mark) {
    line_starts_ = false;
    const size_t begin = at_;
    if (sign == '-') {
      skip_space();
    } else if (sign == '\0' && mark != "}}" && options_.trim_blocks && sees("\n")) {
      skip(1);
    }
    line_starts_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  bool is_closing(std::string_view mark) const {
    if (sees(mark)) return true;
    const bool has_sign = sees("-") || (mark != "}}" && sees("+"));
    return has_sign && rest().substr(1).starts_with(mark);
  }

  void read_comment() {
    if (at_ == source_.size()) return;  // Jinja2 lets "{#" pass here.
    while (at_ < source_.size() && !is_closing("#}")) skip(1);
    if (at_ == source_.size()) fail_here("a comment has no end (#})");
    read_closing("#}");
  }

  /// {% raw %} at `open`: text up to {% endraw %}.
  bool read_raw(size_t open) {
    size_t at = open + 2 + (sign_at(open + 2) ? 1 : 0);
    const auto spaces = [&] {
      const std::string_view left = std::string_view(source_).substr(at);
      at += left.size() - strip(left, Side::kLeft).size();
    };
    const auto take = [&](std::string_view what) {
      const bool is_there = std::string_view(source_).substr(at).starts_with(what);
      if (is_there) at += what.size();
      return is_there;
    };
    spaces();
    if (!take("raw")) return false;
    spaces();
    const bool strips = take("-%}");
    if (!strips && !take("%}")) return false;
    if (strips) spaces();
    skip(at - at_);
    line_starts_ = source_[at_ - 1] == '\n';
    for (size_t end = source_.find("{%", at_); end != kNowhere; end = source_.find("{%", end + 1)) {
      const char sign = sign_at(end + 2);
      at = end + (sign ? 3 : 2);
      spaces();
      if (!take("endraw")) continue;
      spaces();
      char closing = '\0';
      if (take("-%}")) {
        closing = '-';
      } else if (take("+%}")) {
        closing = '+';
      } else if (!take("%}")) {
        continue;
      }
      add_text(before_tag(std::string_view(source_).substr(at_, end - at_), sign, false));
      skip(at - at_);
      after_tag(closing, "%}");
      return true;
    }
    fail_here("{% raw %} has no {% endraw %}");
  }

  /// The tokens of a tag up to its mark.
  void read_tokens(std::string_view mark) {
    std::string open;  // Brackets; inside them a mark is two operators.
    while (true) {
      skip_space();
      if (at_ == source_.size()) fail_here(fmt::format("a tag has no end ({})", mark));
      if (open.empty() && is_closing(mark)) return;
      const char c = source_[at_];
      if (is_name_start(c)) {
        read_name();
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '"' || c == '\'') {
        read_string(c);
      } else {
        read_operator(open);
      }
    }
  }

  void read_name() {
    size_t size = 1;
    while (size < rest().size() && (is_name_start(rest()[size]) || is_digit(rest()[size]))) ++size;
    add(Token::kName, std::string(rest().substr(0, size)));
    skip(size);
    if (at_ < source_.size() && static_cast<uint8_t>(source_[at_]) >= 0x80) {
      fail_here("names of letters beyond ASCII are not supported");
    }
  }

  /// Digits with single underscores between them.
  size_t digits(size_t from) const {
    size_t at = from;
    while (at < source_.size() &&
           (is_digit(source_[at]) || (source_[at] == '_' && at > from && at + 1 < source_.size() &&
                                      is_digit(source_[at + 1])))) {
      ++at;
    }
    return at - from;
  }

  void read_number() {
    size_t size = digits(at_);
    const size_t whole = size;
    bool is_float = false;
    const char previous = at_ > 0 ? source_[at_ - 1] : ' ';
    if (previous != '.') {
      if (const size_t fraction = digits(at_ + size + 1);
          fraction > 0 && rest().substr(size).starts_with('.')) {
        size += 1 + fraction;
        is_float = true;
      }
      if (size < rest().size() && (rest()[size] == 'e' || rest()[size] == 'E')) {
        const size_t sign =
            size + 1 < rest().size() && (rest()[size + 1] == '+' || rest()[size + 1] == '-') ? 1
                                                                                             : 0;
        if (const size_t exponent = digits(at_ + size + 1 + sign); exponent > 0) {
          size += 1 + sign + exponent;
          is_float = true;
        }
      }
    }
    if (!is_float) size = whole;
    std::string text(rest().substr(0, size));
    std::erase(text, '_');
    const bool other_base = text == "0" && size < rest().size() &&
                            std::string_view("bBoOxX").find(rest()[size]) != kNowhere;
    if (other_base || (!is_float && text.size() > 1 && text[0] == '0' &&
                       text.find_first_not_of('0') != kNowhere)) {
      fail_here(fmt::format("the number that begins with {} is not supported", text));
    }
    tokens_.push_back({Token::kNumber, text, parse_number(text, is_float), line_});
    skip(size);
  }

  Value parse_number(const std::string& text, bool is_float) const {
    if (is_float) return Value(std::strtod(text.c_str(), nullptr));
    const auto value = number_in<int64_t>(text);
    if (!value) fail_here(fmt::format("the number {} has more than 64 bits", text));
    return Value(*value);
  }

  void read_string(char quote_mark) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote_mark) {
      end += source_[end] == '\\' ? 2 : 1;
    }
    if (end >= source_.size()) fail_here("a text has no closing quote");
    const std::string_view inner = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    add(Token::kString, unescape(inner));
    skip(end + 1 - at_);
  }

  /// As Jinja2 does it: Python's "backslashreplace" of what is not ASCII, then "unicode-escape".
  std::string unescape(std::string_view text) const {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        result += text[i];
        continue;
      }
      const char c = text[++i];  // There is one: the closing quote was not escaped.
      constexpr std::string_view kLetters = "abfnrtv\\'\"";
      constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
      const size_t place = kLetters.find(c);
      if (place != kNowhere) {
        result += kMeanings[place];
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t size = 0;
        while (size < 3 && i + size < text.size() && text[i + size] >= '0' &&
               text[i + size] <= '7') {
          code = code * 8 + static_cast<uint32_t>(text[i + size++] - '0');
        }
        append_utf8(result, code);
        i += size - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += append_hex(result, text.substr(i + 1), c == 'x' ? 2 : c == 'u' ? 4 : 8);
      } else if (c == 'N') {
        fail_here("\\N{...} in a text is not supported");
      } else if (static_cast<uint8_t>(c) >= 0x80) {
        // Jinja2 gets here "\\" and an escape, of which it makes a backslash and that one's
        // letters.
        const CodePoint character = decode_utf8(text.substr(i));
        const uint32_t code = character.value;
        result += code < 0x100     ? fmt::format("\\x{:02x}", code)
                  : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                   : fmt::format("\\U{:08x}", code);
        i += character.num_bytes - 1;
      } else if (c != '\n') {  // A line end behind a backslash goes with it.
        result += '\\';
        result += c;
      }
    }
    return result;
  }

  size_t append_hex(std::string& text, std::string_view from, size_t size) const {
    const auto code = number_in<uint32_t>(from.substr(0, size), 16);
    if (from.size() < size || !code || *code > 0x10ffff || (*code >= 0xd800 && *code < 0xe000)) {
      fail_here("an escape in a text is not a character of Unicode");
    }
    append_utf8(text, *code);
    return size;
  }

  void read_operator(std::string& open) {
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="}) {
      if (!sees(two)) continue;
      add(Token::kOperator, std::string(two));
      return skip(2);
    }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == kNowhere) {
      fail_here(fmt::format("unexpected character {}",
                            quote(rest().substr(0, decode_utf8(rest()).num_bytes))));
    }
    const size_t opening = std::string_view("([{").find(c);
    const size_t closing = std::string_view(")]}").find(c);
    if (opening != kNowhere) open += ")]}"[opening];
    if (closing != kNowhere) {
      if (open.empty() || open.back() != c) fail_here(fmt::format("unexpected '{}'", c));
      open.pop_back();
    }
    add(Token::kOperator, std::string(1, c));
    skip(1);
  }

  const std::string source_;
  const JinjaOptions& options_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, const JinjaOptions& options) {
  if (source.size() > kMaxSource) throw SourceFailure(1, "a template has at most 1 MiB");
  if (valid_utf8_prefix(source) != source.size()) throw SourceFailure(1, "not UTF-8");
  return Lexer(normalized(source, options.keep_trailing_newline), options).run();
}

}  // namespace atl::text::jinja
