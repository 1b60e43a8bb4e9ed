#pragma once
// JSON numbers within bounds and in steps, as automata over their digits. Exact: bounds are decimal
// fractions, not floats. Pure functions.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/grammar/automaton.h"

namespace atl::grammar {

struct NumberLimit {
  std::string number;  // As in JSON: "-12.5", "1e3".
  bool is_exclusive = false;
};

struct NumberRules {
  bool is_integer = false;
  std::vector<NumberLimit> at_least;
  std::vector<NumberLimit> at_most;
  std::vector<std::string> multiples;      // Of each of these,
  std::vector<std::string> not_multiples;  // and of none of these: of 1, where it is no whole one.
  bool are_empty() const {
    return at_least.empty() && at_most.empty() && multiples.empty() && not_multiples.empty();
  }
};

/// Integers have up to 19 digits; fractions 17 more. Numbers without limits and steps may have an
/// exponent of up to two digits. Throws InputError at steps that need over `max_states`, and at
/// limits with more digits than numbers have.
Automaton number_automaton(const NumberRules& rules, size_t max_states);

/// What keeps both.
NumberRules both(NumberRules a, const NumberRules& b);

/// Whether the number, as JSON writes it, has no fraction: 12, 12.0, 1.2e1.
bool is_whole(std::string_view number);

}  // namespace atl::grammar
