#include "atoll/grammar/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::grammar {
namespace {

using Ranges = std::vector<std::pair<uint32_t, uint32_t>>;  // Of characters, inclusive.

constexpr size_t kMaxParts = 100'000;  // States before they are put together.
constexpr int kMaxNesting = 100;
constexpr uint32_t kMaxRepeat = 5'000;

Ranges inverse(Ranges ranges) {
  std::ranges::sort(ranges);
  Ranges result;
  uint32_t next = 0;
  for (const auto& [first, last] : ranges) {
    if (first > next) result.emplace_back(next, first - 1);
    next = std::max(next, last + 1);
  }
  if (next <= kLastCharacter) result.emplace_back(next, kLastCharacter);
  return result;
}

const Ranges kDigits{{'0', '9'}};
const Ranges kWord{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const Ranges kSpace{{9, 13},          {' ', ' '},       {0xa0, 0xa0},     {0x1680, 0x1680},
                    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                    {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const Ranges kLineEnds{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

/// Reads a pattern and builds as it goes: each function adds what it has read between `from` and
/// the state that it returns.
class PatternReader {
 public:
  explicit PatternReader(std::string_view pattern) : pattern_(pattern) {}

  Automaton read(size_t max_states) {
    const uint32_t start = nfa_.add_state();
    const uint32_t end = nfa_.add_state();
    alternatives(start, end, true);
    if (!at_end()) fail("there is a ) without (");
    return nfa_.automaton(start, end, max_states);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InputError(fmt::format("{} (at byte {} of the pattern)", what, at_));
  }
  bool at_end() const { return at_ == pattern_.size(); }
  bool next_is(char c) const { return !at_end() && pattern_[at_] == c; }
  bool take(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  uint32_t character() {
    if (at_end()) fail("it ends too early");
    const text::CodePoint code = text::decode_utf8(pattern_.substr(at_));
    at_ += code.num_bytes;
    return code.value;
  }

  /// Anchors are taken at the ends of the outermost alternatives; elsewhere they are refused.
  void alternatives(uint32_t from, uint32_t to, bool is_outer) {
    if (++nesting_ > kMaxNesting) fail("groups lie too deep in each other");
    do {
      uint32_t state = nfa_.add_state();
      nfa_.add_empty(from, state);
      if (is_outer && !take("^")) add_any(state);
      bool has_end = false;
      while (!at_end() && !next_is('|') && !next_is(')')) {
        if (is_outer && next_is('$') && ends_alternative(at_ + 1)) {
          ++at_;
          has_end = true;
          break;
        }
        state = repeated(state);
      }
      if (is_outer && !has_end) add_any(state);
      nfa_.add_empty(state, to);
    } while (take("|"));
    --nesting_;
  }
  bool ends_alternative(size_t at) const {
    return at == pattern_.size() || pattern_[at] == '|' || pattern_[at] == ')';
  }
  void add_any(uint32_t state) { add_json_characters(nfa_, state, state, 0, kLastCharacter); }

  uint32_t repeated(uint32_t from) {
    const size_t begin = at_;
    uint32_t state = once(from);
    const size_t end = at_;
    Bounds times{1, 1};
    if (take("*")) {
      times = {0, kNoLimit};
    } else if (take("+")) {
      times = {1, kNoLimit};
    } else if (take("?")) {
      times = {0, 1};
    } else if (!next_is('{') || !read_times(times)) {
      return state;
    }
    take("?");  // Lazy or not: the same strings.
    if (next_is('*') || next_is('+') || next_is('?')) fail("nothing to repeat");
    const size_t behind = at_;
    // Each further time is read again.
    const auto again = [&](uint32_t at) {
      at_ = begin;
      const uint32_t done = once(at);
      if (at_ != end) fail("it cannot be repeated");
      return done;
    };
    const uint32_t finish = nfa_.add_state();
    if (times.min == 0) nfa_.add_empty(from, finish);
    for (uint32_t i = 1; i < times.min; ++i) state = again(state);
    if (times.max == kNoLimit) {
      const uint32_t loop = nfa_.add_state();
      nfa_.add_empty(state, loop);
      nfa_.add_empty(again(loop), loop);
      state = loop;
    } else {
      for (uint32_t i = std::max(times.min, 1U); i < times.max; ++i) {
        nfa_.add_empty(state, finish);
        state = again(state);
      }
    }
    if (times.max != 0) nfa_.add_empty(state, finish);
    at_ = behind;
    return finish;
  }

  bool read_times(Bounds& times) {
    const size_t begin = at_++;
    const auto number = [&]() -> uint32_t {
      if (at_end() || pattern_[at_] < '0' || pattern_[at_] > '9') return kNoLimit;
      uint32_t value = 0;
      while (!at_end() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
        value = std::min(value * 10 + static_cast<uint32_t>(pattern_[at_++] - '0'), kMaxRepeat + 1);
      }
      if (value > kMaxRepeat) fail(fmt::format("it repeats over {} times", kMaxRepeat));
      return value;
    };
    times.min = number();
    times.max = times.min;
    if (times.min != kNoLimit && take(",")) times.max = number();
    if (times.min == kNoLimit || !take("}")) {  // Not a count: characters.
      at_ = begin;
      return false;
    }
    if (times.max < times.min) fail("the numbers in {} are out of order");
    return true;
  }

  uint32_t once(uint32_t from) {
    if (nfa_.size() > kMaxParts) fail("it is too large");
    const uint32_t to = nfa_.add_state();
    if (take("(")) {
      if (take("?") && !take(":")) {
        if (!take("<") || next_is('=') || next_is('!')) fail("look-around is not regular");
        while (!at_end() && !next_is('>')) ++at_;
        if (!take(">")) fail("a group's name has no end");
      }
      alternatives(from, to, false);
      if (!take(")")) fail("a ( has no )");
      return to;
    }
    if (next_is('^') || next_is('$')) fail("^ and $ are supported at the outer ends only");
    if (next_is('*') || next_is('+') || next_is('?')) fail("nothing to repeat");
    add(from, to, take("[") ? char_class() : take(".") ? inverse(kLineEnds) : single());
    return to;
  }

  void add(uint32_t from, uint32_t to, const Ranges& ranges) {
    for (const auto& [first, last] : ranges) add_json_characters(nfa_, from, to, first, last);
  }

  Ranges single() {
    if (take("\\")) return escape(false);
    const uint32_t code = character();
    return {{code, code}};
  }

  Ranges char_class() {
    const bool is_inverse = take("^");
    Ranges ranges;
    while (!take("]")) {
      Ranges part = take("\\") ? escape(true) : Ranges{};
      if (part.empty()) {
        const uint32_t code = character();
        part = {{code, code}};
      }
      const bool is_one = part.size() == 1 && part[0].first == part[0].second;
      if (is_one && next_is('-') && !pattern_.substr(at_).starts_with("-]")) {
        ++at_;
        const Ranges end = take("\\") ? escape(true) : Ranges{};
        const uint32_t last = end.empty() ? character() : end[0].second;
        if (end.size() > 1 || last < part[0].first) fail("a range is out of order");
        part[0].second = last;
      }
      ranges.insert(ranges.end(), part.begin(), part.end());
    }
    return is_inverse ? inverse(ranges) : ranges;
  }

  Ranges escape(bool in_class) {
    const uint32_t code = character();
    switch (code) {
      case 'd':
        return kDigits;
      case 'D':
        return inverse(kDigits);
      case 'w':
        return kWord;
      case 'W':
        return inverse(kWord);
      case 's':
        return kSpace;
      case 'S':
        return inverse(kSpace);
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case '0':
        return {{0, 0}};
      case 'x':
        return hex(2);
      case 'u':
        return take("{") ? braced() : hex(4);
      case 'c': {
        const uint32_t control = character() % 32;
        return {{control, control}};
      }
      case 'b':
        if (in_class) return {{'\b', '\b'}};
        [[fallthrough]];
      case 'B':
      case 'k':
      case 'p':
      case 'P':
        fail(fmt::format("\\{} is not supported", static_cast<char>(code)));
      default:
        break;
    }
    if (code >= '1' && code <= '9') fail("references to groups are not regular");
    if ((code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z')) {
      fail(fmt::format("\\{} is not known", static_cast<char>(code)));
    }
    return {{code, code}};
  }

  uint32_t hex_digit() {
    const uint32_t c = character();
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    fail("a hexadecimal digit is missing");
  }
  Ranges hex(int num_digits) {
    uint32_t code = 0;
    for (int i = 0; i < num_digits; ++i) code = code * 16 + hex_digit();
    if (code >= 0xd800 && code < 0xdc00 && take("\\u")) {
      uint32_t low = 0;
      for (int i = 0; i < 4; ++i) low = low * 16 + hex_digit();
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code > kLastCharacter) fail("there is no such character");
    return {{code, code}};
  }
  Ranges braced() {
    uint32_t code = 0;
    while (!take("}")) {
      code = code * 16 + hex_digit();
      if (code > kLastCharacter) fail("there is no such character");
    }
    return {{code, code}};
  }

  std::string_view pattern_;
  size_t at_ = 0;
  int nesting_ = 0;
  Nfa nfa_;
};

char short_escape(uint32_t code) {
  switch (code) {
    case '"':
      return '"';
    case '\\':
      return '\\';
    case '\b':
      return 'b';
    case '\f':
      return 'f';
    case '\n':
      return 'n';
    case '\r':
      return 'r';
    case '\t':
      return 't';
    default:
      return 0;
  }
}

bool is_escaped(uint32_t code) { return code < 0x20 || code == '"' || code == '\\'; }

}  // namespace

void add_json_characters(Nfa& nfa, uint32_t from, uint32_t to, uint32_t first, uint32_t last) {
  // What needs an escape lies in front; two more stand among ASCII.
  for (uint32_t code = first; code <= std::min(last, uint32_t{'\\'}); ++code) {
    if (!is_escaped(code)) continue;
    const std::string body = short_escape(code) != 0 ? std::string{'\\', short_escape(code)}
                                                     : fmt::format("\\u{:04x}", code);
    const uint32_t escape = nfa.add_state();
    nfa.add_bytes(from, escape, '\\', '\\', Counting::kCounts);
    nfa.add_empty(nfa.add_text(escape, std::string_view(body).substr(1)), to);
  }
  constexpr std::pair<uint32_t, uint32_t> kPlain[] = {
      {' ', '!'}, {'#', '['}, {']', kLastCharacter}};
  for (const auto& [low, high] : kPlain) {
    if (std::max(first, low) <= std::min(last, high)) {
      nfa.add_characters(from, to, std::max(first, low), std::min(last, high), Counting::kCounts);
    }
  }
}

std::string json_body(std::string_view text) {
  std::string body;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (!is_escaped(byte)) {
      body += c;
    } else if (const char letter = short_escape(byte)) {
      body += {'\\', letter};
    } else {
      body += fmt::format("\\u{:04x}", byte);
    }
  }
  return body;
}

Automaton pattern_automaton(std::string_view pattern, size_t max_states) {
  Automaton automaton = PatternReader(pattern).read(max_states);
  if (automaton.states.size() > max_states) throw InputError("it needs too many states");
  return automaton;
}

Automaton length_automaton(Bounds length, size_t max_states) {
  const uint32_t num = length.max == kNoLimit ? length.min : length.max;
  if (num > max_states / 20) throw InputError("beside a pattern it needs too many states");
  Nfa nfa;
  uint32_t state = nfa.add_state();
  const uint32_t end = nfa.add_state();
  for (uint32_t i = 0;; ++i) {
    if (i >= length.min) nfa.add_empty(state, end);
    if (i == num) break;
    const uint32_t next = nfa.add_state();
    add_json_characters(nfa, state, next, 0, kLastCharacter);
    state = next;
  }
  if (length.max == kNoLimit) add_json_characters(nfa, state, state, 0, kLastCharacter);
  return nfa.automaton(0, end, max_states * 2);
}

const char* format_pattern(std::string_view format) {
// A year that has a 29th of February.
#define ATOLL_DATE                                                                          \
  "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|" \
  "02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|" \
  "[13579][26]|00)00)-02-29)"
#define ATOLL_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define ATOLL_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define ATOLL_LABEL "[A-Za-z0-9]+(-+[A-Za-z0-9]+)*"
#define ATOLL_HOST ATOLL_LABEL "(\\." ATOLL_LABEL ")*"
#define ATOLL_GROUP "[0-9A-Fa-f]{1,4}"
  static constexpr std::pair<std::string_view, const char*> kFormats[] = {
      {"date", "^" ATOLL_DATE "$"},
      {"time", "^" ATOLL_TIME "$"},
      {"date-time", "^" ATOLL_DATE "T" ATOLL_TIME "$"},
      {"duration",
       "^P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|"
       "[0-9]+D)(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|"
       "[0-9]+S))?|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|"
       "[0-9]+S))$"},
      {"uuid", "^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$"},
      {"email",
       "^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" ATOLL_HOST "$"},
      {"hostname", "^" ATOLL_HOST "$"},
      {"ipv4", "^" ATOLL_BYTE "(\\." ATOLL_BYTE "){3}$"},
      {"ipv6", "^((" ATOLL_GROUP ":){7}" ATOLL_GROUP "|(" ATOLL_GROUP ":){1,7}:|(" ATOLL_GROUP
               ":){1,6}:" ATOLL_GROUP "|(" ATOLL_GROUP ":){1,5}(:" ATOLL_GROUP
               "){1,2}|(" ATOLL_GROUP ":){1,4}(:" ATOLL_GROUP "){1,3}|(" ATOLL_GROUP
               ":){1,3}(:" ATOLL_GROUP "){1,4}|(" ATOLL_GROUP ":){1,2}(:" ATOLL_GROUP
               "){1,5}|" ATOLL_GROUP ":(:" ATOLL_GROUP "){1,6}|:((:" ATOLL_GROUP "){1,7}|:))$"},
      {"uri",
       "^[A-Za-z][A-Za-z0-9+.-]*:(//[A-Za-z0-9._~%!$&'()*+,;=:-]*(@[A-Za-z0-9.-]+)?"
       "(:[0-9]{1,5})?)?"
       "(/?([A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*)"
       "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
       "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?$"},
  };
  for (const auto& [name, pattern] : kFormats) {
    if (name == format) return pattern;
  }
  return nullptr;
}

}  // namespace atl::grammar
