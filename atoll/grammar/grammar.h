#pragma once
// A grammar over bytes: rules, each an automaton whose edges take bytes or call rules. Running it
// needs a stack of the calls that are open (grammar/machine.h). Immutable, shared by threads.
//
// Every state of it can come to an end: what cannot was taken away when it was built, so that a
// text that was right so far can always be finished, within the depth that is allowed.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/grammar/automaton.h"

namespace atl::grammar {

using RuleId = uint32_t;

struct GrammarLimits {
  size_t schema_bytes = size_t{1} << 18;
  size_t rules = 10'000;
  size_t states = 200'000;
  size_t rule_states = 5'000;  // Above, a rule keeps several ways for a byte.
  uint32_t depth = 64;         // Calls in calls: arrays and objects in each other.
};

class Grammar {
 public:
  struct State {
    uint32_t first_edge = 0;
    uint32_t first_call = 0;
    uint32_t need = 0;  // Calls in calls that its rule needs to come to an end.
    uint32_t owed = 0;  // Counting edges that it must still take to come to one.
    bool accepts = false;
    bool is_plain = false;  // Only takes bytes: does not accept and calls nothing.
    bool is_final = false;  // Accepts and does nothing else.
  };

  std::span<const ByteEdge> edges(uint32_t state) const {
    return {edges_.data() + states_[state].first_edge,
            edges_.data() + states_[state + 1].first_edge};
  }
  std::span<const CallEdge> calls(uint32_t state) const {
    return {calls_.data() + states_[state].first_call,
            calls_.data() + states_[state + 1].first_call};
  }
  const State& state(uint32_t state) const { return states_[state]; }
  uint32_t start(RuleId rule) const { return starts_[rule]; }
  uint32_t root() const { return root_; }
  uint32_t max_depth() const { return max_depth_; }
  size_t num_states() const { return states_.size() - 1; }
  size_t num_bytes() const {
    return states_.size() * sizeof(State) + edges_.size() * sizeof(ByteEdge) +
           calls_.size() * sizeof(CallEdge);
  }
  /// States below are the same in every grammar of schemas.
  uint32_t num_shared() const { return num_shared_; }

 private:
  friend class GrammarBuilder;
  std::vector<State> states_;  // One more than there are.
  std::vector<ByteEdge> edges_;
  std::vector<CallEdge> calls_;
  std::vector<uint32_t> starts_;  // Of each rule.
  uint32_t root_ = 0;             // A state.
  uint32_t max_depth_ = 0;
  uint32_t num_shared_ = 0;
};

/// Puts rules together. A rule may be called before it is defined.
class GrammarBuilder {
 public:
  explicit GrammarBuilder(GrammarLimits limits) : limits_(limits) {}

  /// Throws InputError when there are too many.
  RuleId declare();
  void define(RuleId rule, Automaton automaton);
  RuleId add(Automaton automaton);

  /// The rules so far are the same in every grammar that is made so: their states get the same
  /// numbers everywhere.
  void share() { num_shared_ = rules_.size(); }

  /// Throws InputError where `root` has no text, or calls itself without end.
  std::shared_ptr<const Grammar> build(RuleId root) &&;
  const GrammarLimits& limits() const { return limits_; }

 private:
  void find_needs();
  void refuse_left_recursion() const;
  void drop_dead_ends();
  bool drop_short_calls();
  void drop_idle_counters();
  std::vector<uint32_t> owed(RuleId rule) const;
  GrammarLimits limits_;
  std::vector<Automaton> rules_;
  std::vector<std::vector<uint32_t>> needs_;  // Of each state of each rule.
  size_t num_states_ = 0;
  size_t num_shared_ = 0;
};

}  // namespace atl::grammar
