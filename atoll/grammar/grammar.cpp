#include "atoll/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "atoll/base/check.h"
#include "atoll/base/error.h"

namespace atl::grammar {
namespace {

constexpr uint32_t kNever = UINT32_MAX;

}  // namespace

RuleId GrammarBuilder::declare() {
  if (rules_.size() >= limits_.rules) {
    throw InputError(fmt::format("the grammar needs over {} rules", limits_.rules));
  }
  rules_.emplace_back();
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarBuilder::define(RuleId rule, Automaton automaton) {
  num_states_ += automaton.states.size();
  if (num_states_ > limits_.states) {
    throw InputError(fmt::format("the grammar needs over {} states", limits_.states));
  }
  rules_[rule] = std::move(automaton);
}

RuleId GrammarBuilder::add(Automaton automaton) {
  const RuleId rule = declare();
  define(rule, std::move(automaton));
  return rule;
}

/// A state needs depth n when it reaches the end by bytes and calls of rules that need n - 1. Found
/// level by level, backwards from the ends.
void GrammarBuilder::find_needs() {
  struct Arrow {
    uint32_t from;
    RuleId rule;  // kNever where a byte leads there.
  };
  std::vector<std::vector<std::vector<Arrow>>> arrows(rules_.size());
  std::vector<std::vector<std::pair<RuleId, uint32_t>>> callers(rules_.size());  // Rule, target.
  using Place = std::pair<RuleId, uint32_t>;
  std::vector<Place> now, later;
  needs_.assign(rules_.size(), {});
  for (RuleId rule = 0; rule < rules_.size(); ++rule) {
    const auto& states = rules_[rule].states;
    needs_[rule].assign(states.size(), kNever);
    arrows[rule].resize(states.size());
    for (uint32_t i = 0; i < states.size(); ++i) {
      for (const ByteEdge& edge : states[i].edges) arrows[rule][edge.target].push_back({i, kNever});
      for (const CallEdge& call : states[i].calls) {
        arrows[rule][call.target].push_back({i, call.rule});
        callers[call.rule].emplace_back(rule, call.target);
      }
      if (states[i].accepts) now.emplace_back(rule, i);
    }
  }
  const auto start_need = [&](RuleId rule) {
    return needs_[rule].empty() ? kNever : needs_[rule][0];
  };
  for (uint32_t level = 0; level <= limits_.depth && !now.empty(); ++level) {
    while (!now.empty()) {
      const auto [rule, state] = now.back();
      now.pop_back();
      if (needs_[rule][state] < level) {
        // Known already, and here again since a rule that leads to it has become usable.
      } else if (needs_[rule][state] == kNever) {
        needs_[rule][state] = level;
        if (state == 0) later.insert(later.end(), callers[rule].begin(), callers[rule].end());
      } else {
        continue;
      }
      for (const Arrow& arrow : arrows[rule][state]) {
        if (needs_[rule][arrow.from] != kNever) continue;
        if (arrow.rule == kNever || start_need(arrow.rule) < level) {
          now.emplace_back(rule, arrow.from);
        }
      }
    }
    // Callers whose continuation can end come again on the next level; the others when it can.
    std::ranges::sort(later);
    later.erase(std::ranges::unique(later).begin(), later.end());
    for (const Place& place : later) {
      if (needs_[place.first][place.second] != kNever) now.push_back(place);
    }
    later.clear();
  }
}

/// A rule that may call itself before it has taken a byte would have endlessly deep stacks.
void GrammarBuilder::refuse_left_recursion() const {
  std::vector<uint8_t> mark(rules_.size());  // 1: on the path, 2: done.
  struct Visit {
    RuleId rule;
    std::vector<RuleId> callees;
  };
  const auto callees_of = [&](RuleId rule) {
    std::vector<RuleId> callees;
    std::vector<uint32_t> open{0};
    std::vector<bool> seen(rules_[rule].states.size());
    while (!open.empty()) {
      const uint32_t state = open.back();
      open.pop_back();
      if (seen[state]) continue;
      seen[state] = true;
      for (const CallEdge& call : rules_[rule].states[state].calls) {
        callees.push_back(call.rule);
        // Rules that may be empty lead on to what stands behind them.
        if (rules_[call.rule].states[0].accepts) open.push_back(call.target);
      }
    }
    return callees;
  };
  for (RuleId root = 0; root < rules_.size(); ++root) {
    if (mark[root] != 0 || rules_[root].states.empty()) continue;
    std::vector<Visit> path{{root, callees_of(root)}};
    mark[root] = 1;
    while (!path.empty()) {
      if (path.back().callees.empty()) {
        mark[path.back().rule] = 2;
        path.pop_back();
        continue;
      }
      const RuleId next = path.back().callees.back();
      path.back().callees.pop_back();
      if (mark[next] == 1) throw InputError("it recurs without end: a part of it is itself");
      if (mark[next] == 2 || rules_[next].states.empty()) continue;
      mark[next] = 1;
      path.push_back({next, callees_of(next)});
    }
  }
}

void GrammarBuilder::drop_dead_ends() {
  for (RuleId rule = 0; rule < rules_.size(); ++rule) {
    const auto& need = needs_[rule];
    for (Automaton::State& state : rules_[rule].states) {
      std::erase_if(state.edges, [&](const ByteEdge& e) { return need[e.target] == kNever; });
      std::erase_if(state.calls, [&](const CallEdge& call) {
        return need[call.target] == kNever || needs_[call.rule].empty() ||
               needs_[call.rule][0] == kNever;
      });
    }
  }
}

/// The fewest counting edges from each state to the rule's end.
std::vector<uint32_t> GrammarBuilder::owed(RuleId rule) const {
  const auto& states = rules_[rule].states;
  std::vector<uint32_t> owed(states.size(), kNever);
  std::vector<std::vector<std::pair<uint32_t, bool>>> arrows(states.size());  // From, counts.
  std::vector<uint32_t> now, later;
  for (uint32_t i = 0; i < states.size(); ++i) {
    for (const ByteEdge& edge : states[i].edges) {
      arrows[edge.target].emplace_back(i, edge.counting == Counting::kCounts);
    }
    for (const CallEdge& call : states[i].calls) arrows[call.target].emplace_back(i, false);
    if (states[i].accepts) now.push_back(i);
  }
  for (uint32_t count = 0; !now.empty(); ++count) {
    while (!now.empty()) {
      const uint32_t state = now.back();
      now.pop_back();
      if (owed[state] <= count) continue;
      owed[state] = count;
      for (const auto& [from, counts] : arrows[state]) (counts ? later : now).push_back(from);
    }
    std::swap(now, later);
  }
  return owed;
}

bool GrammarBuilder::drop_short_calls() {
  std::vector<uint32_t> least(rules_.size());  // Counting edges.
  for (RuleId rule = 0; rule < rules_.size(); ++rule) {
    if (!rules_[rule].states.empty()) least[rule] = owed(rule)[0];
  }
  size_t num_dropped = 0;
  for (Automaton& rule : rules_) {
    for (Automaton::State& state : rule.states) {
      num_dropped += std::erase_if(
          state.calls, [&](const CallEdge& call) { return call.bounds.max < least[call.rule]; });
    }
  }
  return num_dropped > 0;
}

/// Edges of rules that nobody calls with bounds need not count: what loops without counting is
/// found sooner (grammar/token_masks.h).
void GrammarBuilder::drop_idle_counters() {
  std::vector<bool> is_bounded(rules_.size());
  for (const Automaton& rule : rules_) {
    for (const Automaton::State& state : rule.states) {
      for (const CallEdge& call : state.calls) {
        if (call.bounds != Bounds{}) is_bounded[call.rule] = true;
      }
    }
  }
  for (size_t rule = num_shared_; rule < rules_.size(); ++rule) {
    if (is_bounded[rule]) continue;
    for (Automaton::State& state : rules_[rule].states) {
      for (ByteEdge& edge : state.edges) edge.counting = Counting::kNone;
    }
  }
}

std::shared_ptr<const Grammar> GrammarBuilder::build(RuleId root) && {
  // A call that may take fewer counting edges than its rule must is no way; without it others may
  // be none either.
  do {
    find_needs();
    drop_dead_ends();
  } while (drop_short_calls());
  if (needs_[root].empty() || needs_[root][0] == kNever) {
    throw InputError(fmt::format(
        "no text satisfies it: it contradicts itself, or asks for itself again and again (over {} "
        "levels)",
        limits_.depth));
  }
  refuse_left_recursion();
  drop_idle_counters();

  auto grammar = std::make_shared<Grammar>();
  std::vector<RuleId> open{root};
  for (RuleId rule = 0; rule < num_shared_; ++rule) {
    open.push_back(static_cast<RuleId>(num_shared_ - 1 - rule));  // They come first, in order.
  }
  constexpr uint32_t kUnknown = UINT32_MAX;
  grammar->starts_.assign(rules_.size(), kUnknown);
  grammar->max_depth_ = limits_.depth;
  // Only what the root leads to; rules keep their states in order, dead ones as well: nothing
  // leads to those.
  std::vector<bool> seen(rules_.size());
  for (const RuleId rule : open) seen[rule] = true;
  size_t num_shared_states = 0;
  while (!open.empty()) {
    const RuleId rule = open.back();
    open.pop_back();
    if (rule < num_shared_) num_shared_states += rules_[rule].states.size();
    const auto base = static_cast<uint32_t>(grammar->states_.size());
    grammar->starts_[rule] = base;
    const std::vector<uint32_t> counts = owed(rule);
    for (size_t i = 0; i < rules_[rule].states.size(); ++i) {
      const Automaton::State& from = rules_[rule].states[i];
      grammar->states_.push_back(
          {.first_edge = static_cast<uint32_t>(grammar->edges_.size()),
           .first_call = static_cast<uint32_t>(grammar->calls_.size()),
           .need = needs_[rule][i],
           .owed = counts[i],
           .accepts = from.accepts,
           .is_plain = !from.accepts && from.calls.empty(),
           .is_final = from.accepts && from.calls.empty() && from.edges.empty()});
      if (needs_[rule][i] == kNever) continue;
      for (ByteEdge edge : from.edges) {
        edge.target += base;
        grammar->edges_.push_back(edge);
      }
      for (CallEdge call : from.calls) {
        call.target += base;
        grammar->calls_.push_back(call);
        if (!seen[call.rule]) open.push_back(call.rule);
        seen[call.rule] = true;
      }
    }
  }
  grammar->states_.push_back({.first_edge = static_cast<uint32_t>(grammar->edges_.size()),
                              .first_call = static_cast<uint32_t>(grammar->calls_.size())});
  grammar->num_shared_ = static_cast<uint32_t>(num_shared_states);
  grammar->root_ = grammar->starts_[root];
  return grammar;
}

}  // namespace atl::grammar
