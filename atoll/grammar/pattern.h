#pragma once
// Regular expressions of JSON schemas (ECMA 262's, as far as they are regular) as automata over the
// bytes of a JSON string, between its quotes. In these automata each character is written in one
// way, as compact JSON writes it: a backslash only where there must be one. So "not this pattern"
// can be told byte by byte.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/grammar/automaton.h"

namespace atl::grammar {

/// Strings in which the pattern is found somewhere, as JSON schema asks for. Throws InputError
/// where the pattern is wrong, needs more than an automaton (\1, \b, look-around), or over
/// `max_states`.
Automaton pattern_automaton(std::string_view pattern, size_t max_states);

/// Strings of some length, in characters; over `max_states` as above.
Automaton length_automaton(Bounds length, size_t max_states);

/// The strings of `format` (date, uuid, ...); nullptr where JSON schema has no such format or this
/// room does not know it.
const char* format_pattern(std::string_view format);

/// Adds the characters from `first` to `last` as a JSON string has them, written in one way. The
/// first byte of each counts, so that a call of a rule can bound how many there are.
void add_json_characters(Nfa& nfa, uint32_t from, uint32_t to, uint32_t first, uint32_t last);

/// What stands between the quotes of a JSON string.
std::string json_body(std::string_view text);

inline constexpr uint32_t kLastCharacter = 0x10ffff;

}  // namespace atl::grammar
