// Arrays: first the items that differ by their place, then a loop, which counts.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/schema_compiler.h"

namespace atl::grammar {
namespace {

constexpr size_t kMaxChoices = 31;        // Values of items that must differ,
constexpr size_t kMaxSets = 512;          // and sets of them that may have been.
constexpr uint32_t kMaxSpelledOut = 256;  // Items whose places are states.

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

bool is_unique(const SchemaNode& array) { return array.schema->value("uniqueItems", false); }

/// What an item may be where items must differ: a value, or anything that is none of the values.
struct Choice {
  std::optional<Json> value;
  RuleId rule = 0;
  size_t place = 0;  // Of what is none of the values.
};

/// The values of a case that has only some.
std::optional<std::vector<Json>> values_of(const SchemaCase& one) {
  if (one.values) return one.values;
  if ((one.types & ~(kNull | kTrue | kFalse)) != 0) return {};
  return std::vector<Json>{nullptr, true, false};
}

}  // namespace

bool must_differ(const SchemaCase& one) { return std::ranges::any_of(one.arrays, is_unique); }

/// Items that must differ. Which values have been is part of the state; how many, and how many of
/// them "contains" asks for, follows from that. One place of prefixItems may take what is none of
/// the values, as may others where none of its values are theirs.
void SchemaCompiler::add_set(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one,
                             const SchemaNode& array) {
  std::vector<std::vector<SchemaNode>> places;
  std::vector<Choice> choices;
  std::vector<bool> is_open;  // Whether a place takes others than values.
  const size_t num_places = std::min<size_t>(num_prefix(one) + 1, one.items.max);
  for (size_t place = 0; place < num_places; ++place) {
    const auto nodes = reader_.item(one, place);
    if (!nodes) break;
    places.push_back(*nodes);
    is_open.push_back(false);
    for (const SchemaCase& item : reader_.read(*nodes)) {
      const auto values = values_of(item);
      if (!values) is_open.back() = true;
      for (const Json& value : values.value_or(std::vector<Json>{})) {
        const auto is_value = [&](const Choice& known) { return is_same(value, *known.value); };
        if (!reader_.admits(item, value) || std::ranges::any_of(choices, is_value)) continue;
        Nfa text;
        const uint32_t start = text.add_state();
        const uint32_t end = blanks(text, text.add_text(start, value.dump()));
        choices.push_back({value, builder_.add(text.automaton(start, end, 10'000))});
      }
    }
  }
  const size_t num_values = choices.size();
  Json values = Json::array();
  for (const Choice& choice : choices) values.push_back(*choice.value);
  for (size_t place = 0; place < places.size(); ++place) {
    if (!is_open[place]) continue;
    if (place == num_prefix(one) && one.items.max > place + 1) {
      refuse(array, "uniqueItems", "it is supported for items of an 'enum' only");
    }
    places[place].push_back(reader_.made(array, {{"not", {{"enum", values}}}}));
    for (size_t other = 0; other < place; ++other) {
      if (is_open[other] && !reader_.values_are_disjoint(places[place], places[other])) {
        refuse(array, "uniqueItems", "items of 'prefixItems' may be the same");
      }
    }
    if (!one.contains.empty()) refuse(array, "uniqueItems", "beside 'contains'");
    choices.push_back({.rule = rule(places[place]), .place = place});
  }
  if (choices.size() > kMaxChoices) refuse(array, "uniqueItems", "too many values");
  const auto set_of = [&](const auto& belongs) {
    uint32_t set = 0;
    for (size_t i = 0; i < choices.size(); ++i) set |= belongs(choices[i]) ? 1U << i : 0;
    return set;
  };
  std::vector<uint32_t> allowed, wanted;
  for (size_t place = 0; place < places.size(); ++place) {
    allowed.push_back(set_of([&](const Choice& choice) {
      if (choice.value && is_open[place]) {
        return reader_.holds(std::span(places[place]).first(places[place].size() - 1),
                             *choice.value);
      }
      return choice.value ? reader_.holds(places[place], *choice.value) : choice.place == place;
    }));
  }
  for (const Contains& contains : one.contains) {
    wanted.push_back(set_of(
        [&](const Choice& choice) { return reader_.holds({&contains.schema, 1}, *choice.value); }));
  }
  const auto may_end = [&](uint32_t set) {
    bool may = std::popcount(set) >= static_cast<int>(one.items.min);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto found = static_cast<uint32_t>(std::popcount(set & wanted[i]));
      may = may && found >= one.contains[i].times.min && found <= one.contains[i].times.max;
    }
    return may;
  };
  std::map<uint32_t, uint32_t> states{{0, nfa.add_state()}};
  std::vector<uint32_t> open{0};
  nfa.add_empty(blanks(nfa, nfa.add_text(from, "[")), states[0]);
  while (!open.empty()) {
    const uint32_t set = open.back();
    open.pop_back();
    const auto num = static_cast<size_t>(std::popcount(set));
    if (may_end(set)) nfa.add_bytes(states[set], to, ']', ']');
    const size_t place = std::min(num, num_prefix(one));
    if (num >= one.items.max || place >= places.size()) continue;
    const uint32_t item = set == 0 ? states[0] : blanks(nfa, nfa.add_text(states[set], ","));
    for (size_t i = 0; i < choices.size(); ++i) {
      if (((allowed[place] & ~set) >> i & 1U) == 0) continue;
      const auto [next, is_new] = states.emplace(set | 1U << i, 0);
      if (is_new) {
        next->second = nfa.add_state();
        open.push_back(next->first);
      }
      const uint32_t behind = i < num_values ? next->second : nfa.add_state();
      nfa.add_call(item, behind, choices[i].rule);
      if (i >= num_values) nfa.add_empty(blanks(nfa, behind), next->second);
    }
    if (states.size() > kMaxSets) refuse(array, "uniqueItems", "too many sets of values");
  }
}

void SchemaCompiler::add_array(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  Bounds size = one.items;
  for (const SchemaNode& array : one.arrays) {
    if (is_unique(array) && size.max > 1) return add_set(nfa, from, to, one, array);
  }
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
  std::optional<SchemaNode> others;  // What "contains" does not count.
  if (times.max != kNoLimit) {
    const SchemaNode& counted = one.contains.front().schema;
    others = reader_.made(counted, {{"not", *counted.schema}});
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
    if (!is_found && times.max != kNoLimit) nodes->push_back(*others);
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
