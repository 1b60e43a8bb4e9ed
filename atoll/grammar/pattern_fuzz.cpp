// Patterns and numbers from strangers: automata, or an InputError, within bounds.
#include <cstdint>
#include <string>
#include <string_view>

#include "atoll/base/error.h"
#include "atoll/grammar/number_automaton.h"
#include "atoll/grammar/pattern.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr std::string_view kLetters = "ab0^$.|()[]{}*+?\\dws-,1:<=pu\"";
  std::string pattern;
  for (size_t i = 0; i < size && i < 40; ++i) pattern += kLetters[data[i] % kLetters.size()];
  for (const std::string& text :
       {std::string(reinterpret_cast<const char*>(data), size), pattern}) {
    try {
      const auto automaton = atl::grammar::pattern_automaton(text, 500);
      atl::grammar::accepts(automaton, text);
    } catch (const atl::InputError&) {
    }
  }
  std::string number;
  for (size_t i = 0; i < size && i < 12; ++i) number += "0123456789.-e"[data[i] % 13];
  try {
    atl::grammar::number_automaton({.at_least = {{number}}, .multiples = {"3"}}, 1000);
  } catch (const atl::InputError&) {
  }
  return 0;
}
