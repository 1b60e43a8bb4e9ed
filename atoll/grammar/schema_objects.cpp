// Objects: the properties that a schema knows, in its order, then the others.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/grammar/pattern.h"
#include "atoll/grammar/schema_compiler.h"
#include "atoll/text/python_text.h"

namespace atl::grammar {

struct Listed {
  std::string name;
  RuleId value;
  bool is_required;
};

/// Names that are not listed, and what holds for their values.
struct Kind {
  std::optional<Automaton> name;  // Between its quotes; nothing: any that is not listed.
  RuleId value;
};

/// What an object may have, in this order.
struct ObjectPlan {
  std::vector<std::string> names;  // All that the schema names, allowed or not.
  std::vector<Listed> listed;
  std::vector<Kind> kinds;
  uint32_t least = 0;
  uint32_t most = kNoLimit;
  bool is_counted() const { return least > 0 || most != kNoLimit; }
};

namespace {

constexpr size_t kMaxKinds = 32;      // Kinds of names that differ in what holds for their values.
constexpr uint32_t kMaxCounted = 64;  // With minProperties or maxProperties.

std::vector<std::string> names_of(const SchemaCase& one) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const SchemaNode& object : one.objects) {
    if (!object.schema->contains("properties")) continue;
    for (const auto& [name, schema] : object.schema->at("properties").items()) add(name);
  }
  for (const std::string& name : one.required) add(name);
  return names;
}

/// Splits the names that are not listed by the patterns that they match.
class Kinds {
 public:
  Kinds(SchemaReader& reader, const SchemaCase& one, const std::vector<std::string>& listed,
        size_t max_states)
      : reader_(reader), max_states_(max_states), is_plain_(one.names.empty()) {
    for (const SchemaNode& object : one.objects) {
      is_plain_ = is_plain_ && !object.schema->contains("patternProperties");
    }
    SchemaCase any{.types = kString};
    if (!is_plain_) any.excluded_texts = listed;
    parts_.push_back({reader.string_body(any, {}), {}});
    for (const SchemaNode& object : one.objects) split(object);
    for (const SchemaNode& node : one.names) restrict_names(node);
  }

  struct Part {
    Automaton name;
    std::vector<SchemaNode> values;
  };
  const std::vector<Part>& parts() const { return parts_; }
  /// No schema asks for more of names than that they are not listed.
  bool is_plain() const { return is_plain_; }

 private:
  void split(const SchemaNode& object) {
    std::vector<Part> open = std::move(parts_);  // What no pattern of this object has matched yet.
    std::vector<Part> matched;
    if (object.schema->contains("patternProperties")) {
      for (const auto& [text, schema] : object.schema->at("patternProperties").items()) {
        const Automaton& pattern = reader_.pattern(object, "patternProperties", text);
        const SchemaNode value = child(object, "patternProperties", text);
        std::vector<Part> next;
        for (const bool was_matched : {true, false}) {
          for (const Part& part : std::exchange(was_matched ? matched : open, {})) {
            Part in{combine(part.name, pattern, Combine::kBoth, max_states_), part.values};
            in.values.push_back(value);
            if (!is_empty(in.name)) next.push_back(std::move(in));
            Part out{combine(part.name, pattern, Combine::kFirstOnly, max_states_), part.values};
            if (is_empty(out.name)) continue;
            (was_matched ? next : open).push_back(std::move(out));
          }
        }
        matched = std::move(next);
      }
    }
    for (Part& part : open) {
      if (object.schema->contains("additionalProperties")) {
        part.values.push_back(child(object, "additionalProperties"));
      }
    }
    parts_ = std::move(matched);
    std::ranges::move(open, std::back_inserter(parts_));
    std::erase_if(parts_, [](const Part& part) {
      return std::ranges::any_of(part.values, [](const SchemaNode& value) {
        return value.schema->is_boolean() && !*value.schema;
      });
    });
    if (parts_.size() > kMaxKinds) refuse(object, "patternProperties", "too many patterns");
  }

  void restrict_names(const SchemaNode& node) {
    Nfa nfa;
    const uint32_t start = nfa.add_state(), end = nfa.add_state();
    for (const SchemaCase& one : reader_.read({&node, 1})) {
      if ((one.types & kString) != 0)
        nfa.add_automaton(start, end, reader_.string_body(one, one.length));
    }
    const Automaton allowed = nfa.automaton(start, end, max_states_);
    for (Part& part : parts_) part.name = combine(part.name, allowed, Combine::kBoth, max_states_);
    std::erase_if(parts_, [](const Part& part) { return is_empty(part.name); });
  }

  SchemaReader& reader_;
  size_t max_states_;
  std::vector<Part> parts_;
  bool is_plain_;
};

/// Where an object is while it is written.
struct Spot {
  size_t next = 0;          // The first listed property that may still come.
  bool is_first = true;     // Nothing written: no comma.
  uint32_t num_listed = 0;  // Written so far, where it matters how many.
  uint32_t num_others = 0;
  auto operator<=>(const Spot&) const = default;
};

}  // namespace

/// A name that is none of `names`, with its last quote: where it parts from all of them, the rest
/// is the rule that all strings share, of which masks are kept.
void SchemaCompiler::add_other_name(Nfa& nfa, uint32_t from, uint32_t to,
                                    const std::vector<std::string>& names) {
  struct Branch {
    uint32_t state;
    std::vector<std::vector<uint32_t>> rests;  // What names have behind the branch.
  };
  std::vector<Branch> open{{from, {}}};
  for (const std::string& name : names) open[0].rests.push_back(text::characters(name));
  while (!open.empty()) {
    const Branch branch = std::move(open.back());
    open.pop_back();
    std::map<uint32_t, std::vector<std::vector<uint32_t>>> next;
    bool is_name = false;
    for (const auto& rest : branch.rests) {
      if (rest.empty()) is_name = true;
      if (!rest.empty()) next[rest[0]].emplace_back(rest.begin() + 1, rest.end());
    }
    if (!is_name) nfa.add_bytes(branch.state, to, '"', '"');
    const uint32_t parted = nfa.add_state();
    nfa.add_call(parted, to, text_);
    uint32_t first = 0;
    for (auto& [character, rests] : next) {
      if (first < character) add_json_characters(nfa, branch.state, parted, first, character - 1);
      first = character + 1;
      const uint32_t state = nfa.add_state();
      add_json_characters(nfa, branch.state, state, character, character);
      open.push_back({state, std::move(rests)});
    }
    add_json_characters(nfa, branch.state, parted, first, kLastCharacter);
  }
}

std::vector<Kind> SchemaCompiler::other_kinds(const SchemaCase& one,
                                              const std::vector<std::string>& names) {
  std::vector<Kind> kinds;
  const Kinds others(reader_, one, names, options_.limits.rule_states);
  for (const auto& part : others.parts()) {
    std::vector<SchemaNode> values;
    for (const SchemaNode& value : part.values) {
      if (value.schema->is_boolean() || value.schema->empty()) continue;
      values.push_back(value);
    }
    kinds.push_back({others.is_plain() ? std::nullopt : std::optional(part.name), rule(values)});
  }
  return kinds;
}

/// Adds a property whose name is not listed; returns the state behind it.
uint32_t SchemaCompiler::add_other(Nfa& nfa, uint32_t from, const Kind& kind,
                                   const std::vector<std::string>& names) {
  uint32_t behind = nfa.add_state();
  if (kind.name) {
    const uint32_t end = nfa.add_state();
    nfa.add_automaton(nfa.add_text(from, "\""), end, *kind.name);
    nfa.add_bytes(end, behind, '"', '"');
  } else if (names.empty()) {
    nfa.add_call(from, behind, string_);
  } else {
    add_other_name(nfa, nfa.add_text(from, "\""), behind, names);
  }
  behind = nfa.add_text(blanks(nfa, behind), ":");
  const uint32_t done = nfa.add_state();
  nfa.add_call(blanks(nfa, behind), done, kind.value);
  return blanks(nfa, done);
}

void SchemaCompiler::add_object(Nfa& nfa, uint32_t from, uint32_t to, const SchemaCase& one) {
  ObjectPlan plan{.names = names_of(one), .most = one.properties.max};
  uint32_t num_required = 0;
  for (const std::string& name : plan.names) {
    const bool is_required = std::ranges::find(one.required, name) != one.required.end();
    const auto nodes = reader_.property(one, name);
    if (!nodes && is_required) return;  // It must be there and must not.
    if (nodes) plan.listed.push_back({name, rule(*nodes), is_required});
    num_required += is_required ? 1 : 0;
  }
  plan.kinds = other_kinds(one, plan.names);
  plan.least = one.properties.min <= num_required ? 0 : one.properties.min;
  if (plan.least > plan.most || num_required > plan.most) return;
  // Other names may be the same twice, and the same name is one property: only one counts surely.
  if (!plan.kinds.empty() && plan.least > plan.listed.size() + 1) {
    throw InputError("'minProperties': more properties than the schema lists");
  }
  if (plan.is_counted() && (plan.most == kNoLimit ? plan.least : plan.most) > kMaxCounted) {
    throw InputError(fmt::format("'maxProperties', 'minProperties': above {}", kMaxCounted));
  }
  add_properties(nfa, from, to, plan);
}

void SchemaCompiler::add_properties(Nfa& nfa, uint32_t from, uint32_t to, const ObjectPlan& plan) {
  std::map<Spot, uint32_t> spots;
  std::vector<Spot> open;
  const auto state_of = [&](const Spot& spot) {
    const auto [found, is_new] = spots.emplace(spot, 0);
    if (is_new) {
      found->second = nfa.add_state();
      open.push_back(spot);
    }
    return found->second;
  };
  nfa.add_empty(blanks(nfa, nfa.add_text(from, "{")), state_of({}));
  while (!open.empty()) {
    const Spot spot = open.back();
    open.pop_back();
    const uint32_t here = state_of(spot);
    const uint32_t num = spot.num_listed + spot.num_others;
    if (spot.next == plan.listed.size() &&
        spot.num_listed + std::min(spot.num_others, 1U) >= plan.least) {
      nfa.add_bytes(here, to, '}', '}');
    }
    if (spot.next < plan.listed.size() && !plan.listed[spot.next].is_required) {
      Spot skipped = spot;
      ++skipped.next;
      nfa.add_empty(here, state_of(skipped));
    }
    if (num >= plan.most) continue;
    const bool is_listed = spot.next < plan.listed.size();
    if (!is_listed && plan.kinds.empty()) continue;
    const uint32_t name = spot.is_first ? here : blanks(nfa, nfa.add_text(here, ","));
    Spot after = spot;
    after.is_first = false;
    if (is_listed) {
      ++after.next;
      if (plan.is_counted()) ++after.num_listed;
      const Listed& next = plan.listed[spot.next];
      nfa.add_empty(property(nfa, name, next.name, next.value), state_of(after));
      continue;
    }
    if (plan.is_counted() && (plan.most != kNoLimit || spot.num_others == 0)) ++after.num_others;
    for (const Kind& kind : plan.kinds) {
      nfa.add_empty(add_other(nfa, name, kind, plan.names), state_of(after));
    }
  }
}

}  // namespace atl::grammar
