// Arrays: first the items that differ by their place, then a loop, which counts.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/schema_compiler.h"

namespace atl::grammar {
namespace {

constexpr uint32_t kMaxSpelledOut = 256;  // Items whose places are states.

}  // namespace

size_t num_prefix(const SchemaCase& one) {
  size_t num = 0;
  for (const SchemaNode& array : one.arrays) {
    const Json& schema = *array.schema;
    if (schema.contains("prefixItems")) num = std::max(num, schema["prefixItems"].size());
    if (schema.contains("items") && schema["items"].is_array()) {
      num = std::max(num, schema["items"].size());
    }
  }
  return num;
}

void SchemaCompiler::add_array(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  Bounds size = one.items;
  if (size.max > 1 && unique_items(one) != nullptr) return add_set(nfa, from, to, one);
  if (one.contains.size() > 1) throw InputError("'contains': several of them together");
  const Bounds times = one.contains.empty() ? Bounds{} : one.contains.front().times;
  if (times.min > times.max) return;
  const uint32_t wanted = times.min;
  const uint32_t most = times.max == kNoLimit ? wanted : times.max;  // Found, as far as counted.
  size.min = std::max(size.min, wanted);
  if (size.min > size.max) return;
  // Places before `loop` have states of their own. With "contains" there is no counter: how many
  // have been found is part of the state as well.
  auto loop = static_cast<uint32_t>(std::max<size_t>(num_prefix(one), 1));
  if (most > 0) loop = std::max({loop, size.min, size.max == kNoLimit ? 0 : size.max});
  if (loop > kMaxSpelledOut || most > 16) {
    throw InputError(fmt::format("'contains', 'prefixItems': over {} items", kMaxSpelledOut));
  }
  Nfa array;
  const uint32_t start = array.add_state();
  const uint32_t end = array.add_state();
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> states;  // Items so far, found.
  const auto state_of = [&](uint32_t num, uint32_t found) {
    const auto [state, is_new] = states.emplace(std::pair{num, found}, 0);
    if (is_new) state->second = array.add_state();
    return state->second;
  };
  // An item and blanks between two states; without one where its place is forbidden.
  const auto add_item = [&](uint32_t before, uint32_t after, uint32_t place, bool is_found) {
    auto nodes = reader_.item(one, place);
    if (!nodes) return;
    if (is_found) nodes->push_back(one.contains.front().schema);
    if (!is_found && times.max != kNoLimit) nodes->push_back(*one.contains.front().others);
    const uint32_t behind = array.add_state();
    array.add_call(before, behind, rule(*nodes));
    array.add_empty(blanks(array, behind), after);
  };
  array.add_empty(blanks(array, array.add_text(start, "[")), state_of(0, 0));
  for (uint32_t num = 0; num < loop; ++num) {
    for (uint32_t found = 0; found <= std::min(num, most); ++found) {
      const uint32_t here = state_of(num, found);
      if (num >= size.min && found >= wanted) array.add_bytes(here, end, ']', ']');
      if (num >= size.max) continue;
      const uint32_t item = num == 0 ? here : blanks(array, array.add_text(here, ","));
      add_item(item, state_of(num + 1, found), num, false);
      if (found < most) add_item(item, state_of(num + 1, found + 1), num, true);
    }
  }
  // From here all places are alike. What is still asked for must really be there, so the first
  // state of the loop can only end where nothing is.
  const Bounds rest{size.min > loop ? size.min - loop : 0,
                    size.max == kNoLimit ? kNoLimit : size.max - std::min(size.max, loop)};
  for (uint32_t found = 0; found <= most; ++found) {
    const uint32_t first = state_of(loop, found);
    const uint32_t again = rest.min == 0 ? first : array.add_state();
    if (found >= wanted) array.add_bytes(again, end, ']', ']', Counting::kNeedsEnough);
    if (rest.max == 0) continue;
    for (const uint32_t here : {first, again}) {
      const uint32_t comma = array.add_state();
      array.add_bytes(here, comma, ',', ',', Counting::kCounts);
      const uint32_t item = blanks(array, comma);
      add_item(item, again, loop, false);
      if (found < most) add_item(item, state_of(loop, found + 1), loop, true);
      if (first == again) break;
    }
  }
  const RuleId rule = builder_.declare();
  builder_.define(rule, array.automaton(start, end, options_.limits.rule_states));
  nfa.add_call(from, to, rule, rest);
}

}  // namespace atl::grammar
