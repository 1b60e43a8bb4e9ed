#include "atoll/grammar/number_automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "atoll/base/error.h"

namespace atl::grammar {
namespace {

constexpr int kMaxInteger = 19;
constexpr int kMaxFraction = 17;

/// digits[0 .. num_integer) stand before the point; no zeros in front, none behind.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int num_integer = 0;

  bool is_zero() const { return digits.empty(); }
  int num_fraction() const { return static_cast<int>(digits.size()) - num_integer; }
  char integer_digit(int i) const { return digits[static_cast<size_t>(i)]; }
  char fraction_digit(int i) const {
    const auto place = static_cast<size_t>(num_integer + i);
    return place < digits.size() ? digits[place] : '0';
  }
};

Decimal read_decimal(std::string_view text) {
  Decimal decimal;
  int exponent = 0;
  const size_t e = text.find_first_of("eE");
  if (e != std::string_view::npos) {
    std::string_view written = text.substr(e + 1);
    if (written.starts_with('+')) written.remove_prefix(1);
    if (std::from_chars(written.data(), written.data() + written.size(), exponent).ec !=
        std::errc()) {
      throw InputError(fmt::format("the number {} is too large", text));
    }
    text = text.substr(0, e);
  }
  if (text.starts_with('-')) {
    decimal.is_negative = true;
    text.remove_prefix(1);
  }
  const size_t point = std::min(text.find('.'), text.size());
  decimal.digits = std::string(text.substr(0, point));
  if (point < text.size()) decimal.digits += text.substr(point + 1);
  int place = static_cast<int>(point) + std::clamp(exponent, -10'000, 10'000);
  const size_t zeros = std::min(decimal.digits.find_first_not_of('0'), decimal.digits.size());
  decimal.digits.erase(0, zeros);
  place -= static_cast<int>(zeros);
  while (decimal.digits.ends_with('0')) decimal.digits.pop_back();
  if (decimal.is_zero()) return {};
  if (place < 0) {
    decimal.digits.insert(0, static_cast<size_t>(std::min(-place, 1000)), '0');
    place = 0;
  }
  if (place > static_cast<int>(decimal.digits.size())) {
    decimal.digits.append(static_cast<size_t>(place) - decimal.digits.size(), '0');
  }
  decimal.num_integer = place;
  return decimal;
}

/// Where a number that is being written stands beside a limit's absolute value, by its digits so
/// far; how many digits its integer has decides last.
enum class Order : int8_t { kBelow = -1, kEqual = 0, kAbove = 1 };

Order after_digit(Order order, char digit, char limit) {
  if (order != Order::kEqual) return order;
  return digit < limit ? Order::kBelow : digit > limit ? Order::kAbove : Order::kEqual;
}

struct Limit {
  Decimal value;
  bool is_exclusive = false;
  bool is_least = false;
};

/// One number's requirements while it is written: the state of a machine that `explore` turns into
/// an automaton.
struct NumberState {
  enum Phase : uint8_t { kStart, kSign, kZero, kInteger, kPoint, kFraction };
  Phase phase = kStart;
  bool is_negative = false;
  bool is_zero = true;  // Only zeros so far.
  int num_digits = 0;   // Of the integer, or behind the point.
  std::vector<Order> orders;
  std::vector<uint64_t> remainders;
  auto operator<=>(const NumberState&) const = default;
};

class NumberMachine {
 public:
  explicit NumberMachine(const NumberRules& rules) : is_integer_(rules.is_integer) {
    for (const bool is_least : {true, false}) {
      for (const NumberLimit& limit : is_least ? rules.at_least : rules.at_most) {
        limits_.push_back({read_decimal(limit.number), limit.is_exclusive, is_least});
      }
    }
    for (const std::string& step : rules.multiples) add_step(step, false);
    for (const std::string& step : rules.not_multiples) add_step(step, true);
    for (const Limit& limit : limits_) {
      if (limit.value.num_fraction() > kMaxFraction) {
        throw InputError("a limit has too many digits behind the point");
      }
    }
  }

  NumberState start() const {
    NumberState state;
    state.orders.assign(limits_.size(), Order::kEqual);
    state.remainders.assign(steps_.size(), 0);
    return state;
  }

  std::optional<NumberState> next(NumberState state, char c) const {
    using State = NumberState;
    if (c == '-') {
      if (state.phase != State::kStart) return {};
      state.phase = State::kSign;
      state.is_negative = true;
      return state;
    }
    if (c == '.') {
      if (is_integer_ || (state.phase != State::kZero && state.phase != State::kInteger)) return {};
      end_integer(state);
      state.phase = State::kPoint;
      state.num_digits = 0;
      return state;
    }
    if (state.phase == State::kZero) return {};
    if (state.phase == State::kStart || state.phase == State::kSign) {
      state.phase = c == '0' ? State::kZero : State::kInteger;
    } else if (state.phase == State::kPoint) {
      state.phase = State::kFraction;
    }
    return take_digit(std::move(state), c);
  }

  bool accepts(NumberState state) const {
    if (state.phase == NumberState::kZero || state.phase == NumberState::kInteger) {
      end_integer(state);
      state.num_digits = 0;
    } else if (state.phase != NumberState::kFraction) {
      return false;
    }
    for (size_t i = 0; i < limits_.size(); ++i) {
      if (!keeps(limits_[i], state, state.orders[i])) return false;
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      uint64_t remainder = state.remainders[i];
      for (int j = state.num_digits; j < steps_[i].scale && remainder != kFiner; ++j) {
        remainder = remainder * 10 % steps_[i].step;
      }
      if ((remainder != 0) != steps_[i].is_excluded) return false;
    }
    return true;
  }

 private:
  struct Step {
    uint64_t step = 1;  // The number times 10^scale is a multiple of this.
    int scale = 0;
    bool is_excluded = false;  // Multiples of it are not wanted.
  };
  static constexpr uint64_t kFiner = UINT64_MAX;  // The remainder of what no further digit mends.

  void add_step(const std::string& text, bool is_excluded) {
    const Decimal decimal = read_decimal(text);
    if (decimal.is_zero() || decimal.is_negative) throw InputError("it must be above 0");
    const int scale = std::max(0, decimal.num_fraction());
    if (decimal.digits.size() > 17 || scale > kMaxFraction) {
      throw InputError("it has too many digits");
    }
    steps_.push_back({std::stoull(decimal.digits), scale, is_excluded});
  }

  std::optional<NumberState> take_digit(NumberState state, char c) const {
    const bool is_fraction = state.phase == NumberState::kFraction;
    const int place = state.num_digits++;
    if (state.num_digits > (is_fraction ? kMaxFraction : kMaxInteger)) return {};
    state.is_zero &= c == '0';
    for (size_t i = 0; i < limits_.size(); ++i) {
      const Decimal& value = limits_[i].value;
      if (is_fraction) {
        state.orders[i] = after_digit(state.orders[i], c, value.fraction_digit(place));
      } else if (state.phase == NumberState::kInteger && place < value.num_integer) {
        state.orders[i] = after_digit(state.orders[i], c, value.integer_digit(place));
      }
    }
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (state.remainders[i] == kFiner) continue;
      if (is_fraction && place >= steps_[i].scale) {
        if (c == '0') continue;
        if (!steps_[i].is_excluded) return {};
        state.remainders[i] = kFiner;
        continue;
      }
      state.remainders[i] =
          (state.remainders[i] * 10 + static_cast<uint64_t>(c - '0')) % steps_[i].step;
    }
    return state;
  }

  void end_integer(NumberState& state) const {
    const int num_digits = state.phase == NumberState::kZero ? 0 : state.num_digits;
    for (size_t i = 0; i < limits_.size(); ++i) {
      const int limit = limits_[i].value.num_integer;
      if (num_digits != limit) state.orders[i] = num_digits < limit ? Order::kBelow : Order::kAbove;
    }
  }

  static bool keeps(const Limit& limit, const NumberState& state, Order order) {
    // From absolute values to signed ones.
    const bool is_negative = state.is_negative && !state.is_zero;
    int compared = static_cast<int>(order);
    // Digits of the limit that the number does not write are above its zeros.
    if (order == Order::kEqual && state.num_digits < limit.value.num_fraction()) compared = -1;
    if (is_negative != limit.value.is_negative) {
      compared = is_negative ? -1 : 1;
      if (state.is_zero && limit.value.is_zero()) compared = 0;
    } else if (is_negative) {
      compared = -compared;
    }
    if (compared == 0) return !limit.is_exclusive;
    return limit.is_least == (compared > 0);
  }

  bool is_integer_;
  std::vector<Limit> limits_;
  std::vector<Step> steps_;
};

Automaton explore(const NumberMachine& machine, size_t max_states) {
  std::map<NumberState, uint32_t> numbers{{machine.start(), 0}};
  std::vector<NumberState> states{machine.start()};
  Automaton automaton;
  for (size_t i = 0; i < states.size(); ++i) {
    if (states.size() > max_states) throw InputError("it needs too many states");
    const NumberState from = states[i];
    Automaton::State& state = automaton.states.emplace_back();
    state.accepts = machine.accepts(from);
    for (const char c : std::string_view("-.0123456789")) {
      const auto to = machine.next(from, c);
      if (!to) continue;
      const auto [found, is_new] = numbers.emplace(*to, static_cast<uint32_t>(states.size()));
      if (is_new) states.push_back(*to);
      const auto byte = static_cast<uint8_t>(c);
      if (!state.edges.empty() && state.edges.back().target == found->second &&
          state.edges.back().last + 1 == byte) {
        state.edges.back().last = byte;
      } else {
        state.edges.push_back({byte, byte, Counting::kNone, found->second});
      }
    }
  }
  return automaton;
}

/// "e", a sign, one or two digits, behind any number.
void add_exponents(Automaton& automaton) {
  const auto first = static_cast<uint32_t>(automaton.states.size());
  for (Automaton::State& state : automaton.states) {
    if (!state.accepts) continue;
    for (const uint8_t e : {'E', 'e'}) state.edges.push_back({e, e, Counting::kNone, first});
  }
  const ByteEdge digit{'0', '9', Counting::kNone, first + 2};
  automaton.states.push_back(
      {.edges = {
           {'+', '+', Counting::kNone, first + 1}, {'-', '-', Counting::kNone, first + 1}, digit}});
  automaton.states.push_back({.edges = {digit}});
  automaton.states.push_back({.edges = {{'0', '9', Counting::kNone, first + 3}}, .accepts = true});
  automaton.states.push_back({.accepts = true});
}

}  // namespace

Automaton number_automaton(const NumberRules& rules, size_t max_states) {
  Automaton automaton = explore(NumberMachine(rules), max_states);
  if (!rules.is_integer && rules.are_empty()) add_exponents(automaton);
  return automaton;
}

NumberRules both(NumberRules a, const NumberRules& b) {
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  a.is_integer |= b.is_integer;
  append(a.at_least, b.at_least);
  append(a.at_most, b.at_most);
  append(a.multiples, b.multiples);
  append(a.not_multiples, b.not_multiples);
  return a;
}

bool is_whole(std::string_view number) { return read_decimal(number).num_fraction() <= 0; }

}  // namespace atl::grammar
