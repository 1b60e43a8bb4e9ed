// Debian's Oniguruma knows the Unicode of 2021. What differs in 16 is little, so classes are
// completed, not replaced: with a newer Oniguruma the additions change nothing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "atoll/base/error.h"
#include "atoll/text/regex.h"

namespace atl::text {
namespace {

/// Characters of another general category than in Unicode 14, and that of 16.
struct Since14 {
  uint32_t first, last;
  std::string_view category;
};
constexpr Since14 kSince14[] = {
#include "atoll/text/unicode_since_14.inc"
};
/// The only one that had a category before: Mn. The others had none.
constexpr uint32_t kOnceMark = 0x1171e;

/// \p{Han}: general categories do not tell scripts.
constexpr std::string_view kNewHan = R"(\x{2b739}\x{2ebf0}-\x{2ee5d}\x{31350}-\x{323af})";
/// Numbers that \w has where it stands alone, not in brackets.
constexpr std::string_view kLatinNumbers = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

struct LongName {
  std::string_view name, category;
};
constexpr std::array kLongNames = {LongName{"letter", "l"},
                                   LongName{"uppercaseletter", "lu"},
                                   LongName{"lowercaseletter", "ll"},
                                   LongName{"titlecaseletter", "lt"},
                                   LongName{"modifierletter", "lm"},
                                   LongName{"otherletter", "lo"},
                                   LongName{"mark", "m"},
                                   LongName{"combiningmark", "m"},
                                   LongName{"nonspacingmark", "mn"},
                                   LongName{"spacingmark", "mc"},
                                   LongName{"enclosingmark", "me"},
                                   LongName{"number", "n"},
                                   LongName{"decimalnumber", "nd"},
                                   LongName{"digit", "nd"},
                                   LongName{"letternumber", "nl"},
                                   LongName{"othernumber", "no"},
                                   LongName{"punctuation", "p"},
                                   LongName{"punct", "p"},
                                   LongName{"hani", "han"},
                                   LongName{"other", "c"},
                                   LongName{"unassigned", "cn"},
                                   LongName{"dashpunctuation", "pd"},
                                   LongName{"openpunctuation", "ps"},
                                   LongName{"closepunctuation", "pe"},
                                   LongName{"connectorpunctuation", "pc"},
                                   LongName{"otherpunctuation", "po"},
                                   LongName{"symbol", "s"},
                                   LongName{"mathsymbol", "sm"},
                                   LongName{"currencysymbol", "sc"},
                                   LongName{"modifiersymbol", "sk"},
                                   LongName{"othersymbol", "so"}};

/// As Oniguruma compares names: without case, spaces, '-' and '_'.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (c != ' ' && c != '-' && c != '_') plain += static_cast<char>(is_upper ? c + 32 : c);
  }
  const auto found = std::ranges::find(kLongNames, plain, &LongName::name);
  return found == kLongNames.end() ? plain : std::string(found->category);
}

bool is_word(std::string_view category) {
  return category[0] == 'l' || category[0] == 'm' || category == "nd" || category == "nl" ||
         category == "pc";
}

std::string range_text(const Since14& range) {
  return fmt::format(R"(\x{{{:x}}}-\x{{{:x}}})", range.first, range.last);
}

bool has(std::string_view name, std::string_view category) {
  if (name == "word") return is_word(category);
  if (name == "graph" || name == "print" || name == "assigned") return true;
  return category.starts_with(name);
}

/// What Unicode 16 adds to a class of this plain name, as it stands in brackets.
std::string added_to(std::string_view name) {
  if (name == "han") return std::string(kNewHan);
  std::string added;
  for (const Since14& range : kSince14) {
    if (has(name, range.category)) added += range_text(range);
  }
  return added;
}

/// And what it takes away.
std::string lost_by(std::string_view name) {
  std::string lost;
  for (const Since14& range : kSince14) {
    const std::string_view before = range.first == kOnceMark ? "mn" : "cn";
    if (before.starts_with(name) && !has(name, range.category)) lost += range_text(range);
  }
  return lost;
}

/// [[:punct:]] has the symbols, too, which \p{Punct} has not.
struct PosixName {
  std::string_view name, plain, more;
};
constexpr std::array kPosixNames = {PosixName{"digit:]", "nd", ""}, PosixName{"word:]", "word", ""},
                                    PosixName{"graph:]", "graph", ""},
                                    PosixName{"print:]", "print", ""},
                                    PosixName{"punct:]", "p", R"(\p{S})"}};

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : rest_(pattern) {}

  std::string all() {
    while (!rest_.empty()) {
      if (rest_[0] == '\\' && rest_.size() > 1) {
        escape();
      } else if (rest_[0] == '[') {
        open();
      } else if (depth_ > 0) {
        depth_ -= rest_[0] == ']';
        take(1);
      } else if (rest_[0] == '(') {
        begin_group();
      } else {
        if (rest_[0] == ')' && ignores_case_.size() > 1) ignores_case_.pop_back();
        take(1);
      }
    }
    return std::move(out_);
  }

 private:
  void take(size_t count) {
    count = std::min(count, rest_.size());
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(count);
  }

  /// A class begins; a ']' that comes first in it is a character.
  void open() {
    if (depth_ > 0 && rest_.starts_with("[:")) {  // [[:alpha:]]
      const size_t end = rest_.find(":]");
      return posix(end == std::string_view::npos ? 2 : end + 2);
    }
    ++depth_;
    take(1);
    if (rest_.starts_with('^')) take(1);
    if (rest_.starts_with(']')) take(1);
  }

  /// [:name:] or [:^name:], in brackets.
  void posix(size_t size) {
    const std::string_view written = rest_.substr(0, size);
    const bool is_negated = written.starts_with("[:^");
    const std::string_view name = written.substr(is_negated ? 3 : 2);
    const auto* const known = std::ranges::find(kPosixNames, name, &PosixName::name);
    if (known == kPosixNames.end()) return take(size);
    out_ += fmt::format("[{}[:{}{}", is_negated ? "^" : "", name, known->more);
    out_ += added(std::string(known->plain));
    if (!known->more.empty()) out_ += added("s");
    out_ += "]";
    rest_.remove_prefix(size);
  }

  /// added_to(), made once.
  const std::string& added(const std::string& name) {
    const auto [place, is_new] = added_.try_emplace(name);
    if (is_new) place->second = added_to(name);
    return place->second;
  }

  /// (?i:...) heeds no case inside, (?i) none to the end of the group that it stands in.
  void begin_group() {
    if (rest_.starts_with("(?#")) return take(rest_.find(')'));
    ignores_case_.push_back(ignores_case_.back());
    const size_t end = rest_.find_first_of(":)", 2);
    const bool has_options = rest_.starts_with("(?") && end != kNowhere && end > 2 &&
                             rest_.substr(2, end - 2).find_first_not_of(kOptions) == kNowhere;
    if (!has_options) return take(1);
    const std::string_view options = rest_.substr(2, end - 2);
    if (options.find_first_not_of("im-") != kNowhere) {
      throw InputError(fmt::format(
          "the options (?{}) of a pattern are not supported: only i and m are", options));
    }
    const size_t off = options.find('-');
    if (const size_t at = options.find('i'); at != std::string_view::npos) {
      ignores_case_.back() = at < off;
    }
    if (rest_[end] == ')') {
      const bool ignores = ignores_case_.back();
      ignores_case_.pop_back();
      ignores_case_.back() = ignores;
    }
    take(end + 1);
  }

  void escape() {
    const char letter = rest_[1];
    if (letter == 'd' || letter == 'D') return put("nd", rest_.substr(0, 2), letter == 'D');
    if (letter == 'w' || letter == 'W') return put("word", rest_.substr(0, 2), letter == 'W');
    const size_t end = rest_.find('}');
    if ((letter != 'p' && letter != 'P') || !rest_.substr(2).starts_with('{') ||
        end == std::string_view::npos) {
      return take(2);
    }
    std::string_view name = rest_.substr(3, end - 3);
    const bool has_caret = name.starts_with('^');
    if (has_caret) name.remove_prefix(1);
    put(plain_name(name), rest_.substr(0, end + 1), (letter == 'P') != has_caret);
  }

  /// A class that is `written` so, with what it lacks. Alone it is not widened where case is
  /// ignored, as brackets are.
  void put(std::string_view name, std::string_view written, bool is_negated) {
    std::string gained = added(std::string(name));
    if (name == "word" && depth_ == 0) gained += kLatinNumbers;
    const std::string lost = lost_by(name);
    if (gained.empty() && lost.empty()) return take(written.size());
    const std::string& more = is_negated ? lost : gained;
    const std::string& less = is_negated ? gained : lost;
    std::string whole = fmt::format("[{}{}]", written, more);
    if (!less.empty()) whole = fmt::format("[{}&&[^{}]]", whole, less);
    out_ += depth_ == 0 && ignores_case_.back() ? fmt::format("(?-i:{})", whole) : whole;
    rest_.remove_prefix(written.size());
  }

  static constexpr std::string_view kOptions = "imxWDSPCIL-aunsdy{}g";  // All that there are.
  static constexpr size_t kNowhere = std::string_view::npos;

  std::string_view rest_;
  std::string out_;
  std::map<std::string, std::string> added_;
  int depth_ = 0;                             // Of brackets.
  std::vector<bool> ignores_case_ = {false};  // By depth of groups.
};

}  // namespace

std::string with_unicode_16(std::string_view pattern) { return Rewriter(pattern).all(); }

}  // namespace atl::text
