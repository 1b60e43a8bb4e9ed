// Arrays whose items must differ. Which values have been is part of the state; how many, and how
// many of them "contains" asks for, follows from that. A place of prefixItems may also take what is
// none of the values, where no other such place takes the same.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <utility>

#include "atoll/grammar/schema_compiler.h"

namespace atl::grammar {

/// Sets of choices are bits, by their number.
struct SetPlan {
  struct Choice {
    std::optional<Json> value;  // Nothing: what is none of the values.
    RuleId rule = 0;
  };
  struct Place {
    std::vector<SchemaNode> schemas;
    bool is_open = false;  // Takes others than values.
    uint32_t allowed = 0;
  };
  std::vector<Place> places;  // The last is that of all others, where there are so many.
  std::vector<Choice> choices;
  std::vector<uint32_t> counted;  // By each "contains".

  void add(Choice choice, const SchemaCase& one) {
    constexpr size_t kMaxChoices = 31;
    if (choices.size() == kMaxChoices) refuse(*unique_items(one), "uniqueItems", "too many values");
    choices.push_back(std::move(choice));
  }
  template <typename Holds>
  uint32_t set_of(const Holds& holds) const {
    uint32_t set = 0;
    for (size_t i = 0; i < choices.size(); ++i) set |= holds(*choices[i].value) ? 1U << i : 0;
    return set;
  }
};

namespace {

constexpr size_t kMaxSets = 512;

/// The values of a case that has only some.
std::optional<std::vector<Json>> values_of(const SchemaCase& one) {
  if (one.values) return one.values;
  if ((one.types & ~(kNull | kTrue | kFalse)) != 0) return {};
  return std::vector<Json>{nullptr, true, false};
}

}  // namespace

const SchemaNode* unique_items(const SchemaCase& one) {
  for (const SchemaNode& array : one.arrays) {
    if (array.schema->value("uniqueItems", false)) return &array;
  }
  return nullptr;
}

SetPlan SchemaCompiler::plan_set(const SchemaCase& one) {
  SetPlan plan;
  const size_t num_places = std::min<size_t>(num_prefix(one) + 1, one.items.max);
  for (size_t number = 0; number < num_places; ++number) {
    const auto nodes = reader_.item(one, number);
    if (!nodes) break;
    SetPlan::Place& place = plan.places.emplace_back();
    place.schemas = *nodes;
    for (const SchemaCase& item : reader_.read(*nodes)) {
      const auto values = values_of(item);
      if (!values) place.is_open = true;
      for (const Json& value : values.value_or(std::vector<Json>{})) {
        const auto is_value = [&](const auto& known) { return is_same(value, *known.value); };
        if (!reader_.admits(item, value) || std::ranges::any_of(plan.choices, is_value)) continue;
        Nfa text;
        const uint32_t start = text.add_state();
        const uint32_t end = text.add_text(start, value.dump());
        plan.add({value, builder_.add(text.automaton(start, end, 10'000))}, one);
      }
    }
  }
  for (SetPlan::Place& place : plan.places) {
    place.allowed = plan.set_of([&](const Json& v) { return reader_.holds(place.schemas, v); });
  }
  for (const Contains& contains : one.contains) {
    plan.counted.push_back(
        plan.set_of([&](const Json& v) { return reader_.holds({&contains.schema, 1}, v); }));
  }
  add_others(plan, one);
  return plan;
}

/// A choice more for each place that takes others than the values.
void SchemaCompiler::add_others(SetPlan& plan, const SchemaCase& one) {
  const SchemaNode& array = *unique_items(one);
  Json values = Json::array();
  for (const SetPlan::Choice& choice : plan.choices) values.push_back(*choice.value);
  for (size_t i = 0; i < plan.places.size(); ++i) {
    SetPlan::Place& place = plan.places[i];
    if (!place.is_open) continue;
    if ((i == num_prefix(one) && one.items.max > i + 1) || !one.contains.empty()) {
      refuse(array, "uniqueItems", "it is supported for items of an 'enum' only");
    }
    place.schemas.push_back(reader_.made(array, {{"not", {{"enum", values}}}}));
    for (size_t j = 0; j < i; ++j) {
      const SetPlan::Place& other = plan.places[j];
      if (other.is_open && !reader_.values_are_disjoint(place.schemas, other.schemas)) {
        refuse(array, "uniqueItems", "items of 'prefixItems' may be the same");
      }
    }
    place.allowed |= 1U << plan.choices.size();
    plan.add({.rule = rule(place.schemas)}, one);
  }
}

void SchemaCompiler::add_set(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  const SetPlan plan = plan_set(one);
  const auto may_end = [&](uint32_t set) {
    bool may = std::popcount(set) >= static_cast<int>(one.items.min);
    for (size_t i = 0; i < plan.counted.size(); ++i) {
      const auto found = static_cast<uint32_t>(std::popcount(set & plan.counted[i]));
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
    if (num >= one.items.max || place >= plan.places.size()) continue;
    const uint32_t item = set == 0 ? states[0] : blanks(nfa, nfa.add_text(states[set], ","));
    for (size_t i = 0; i < plan.choices.size(); ++i) {
      if (((plan.places[place].allowed & ~set) >> i & 1U) == 0) continue;
      const auto [next, is_new] = states.emplace(set | 1U << i, 0);
      if (is_new) {
        next->second = nfa.add_state();
        open.push_back(next->first);
      }
      const uint32_t behind = nfa.add_state();
      nfa.add_call(item, behind, plan.choices[i].rule);
      nfa.add_empty(blanks(nfa, behind), next->second);
    }
    if (states.size() > kMaxSets) {
      refuse(*unique_items(one), "uniqueItems", "too many sets of values");
    }
  }
}

}  // namespace atl::grammar
