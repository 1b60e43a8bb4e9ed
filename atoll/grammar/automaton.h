#pragma once
// Automata over bytes that may also call rules of a grammar: what schemas, patterns and numbers are
// made of before they become a Grammar. Edges may count: a rule that is called with bounds has one
// counter, so that "up to 10,000 characters" needs no 10,000 states. Plain data and pure functions.
#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

namespace atl::grammar {

inline constexpr uint32_t kNoLimit = UINT32_MAX;

/// How many counting edges a call of a rule must and may still take.
struct Bounds {
  uint32_t min = 0;
  uint32_t max = kNoLimit;
  auto operator<=>(const Bounds&) const = default;
};

enum class Counting : uint8_t {
  kNone,
  kCounts,       // Takes one of what the call still may: refused when nothing is left.
  kNeedsEnough,  // Refused while the call has not had its minimum.
};

struct ByteEdge {
  uint8_t first = 0;
  uint8_t last = 0;  // Inclusive.
  Counting counting = Counting::kNone;
  uint32_t target = 0;
};

struct CallEdge {
  uint32_t rule = 0;
  Bounds bounds;
  uint32_t target = 0;  // Where it goes on when the rule has come to an end.
};

struct Automaton {
  struct State {
    std::vector<ByteEdge> edges;
    std::vector<CallEdge> calls;
    bool accepts = false;
  };
  std::vector<State> states;  // The first is the start.
};

/// An automaton in the making, with steps that take nothing.
class Nfa {
 public:
  uint32_t add_state();
  void add_empty(uint32_t from, uint32_t to) { states_[from].empty.push_back(to); }
  void add_bytes(uint32_t from, uint32_t to, uint8_t first, uint8_t last,
                 Counting counting = Counting::kNone);
  void add_call(uint32_t from, uint32_t to, uint32_t rule, Bounds bounds = {});
  /// Returns the state behind `text`.
  uint32_t add_text(uint32_t from, std::string_view text);
  /// The characters from `first` to `last` in UTF-8; the first byte of each counts so: a
  /// character that has begun can always be finished.
  void add_characters(uint32_t from, uint32_t to, uint32_t first, uint32_t last,
                      Counting counting = Counting::kNone);
  /// All that `part` accepts leads from `from` to `to`.
  void add_automaton(uint32_t from, uint32_t to, const Automaton& part);

  /// What leads from `start` to `end`. Where that would take over `max_states`, several edges of a
  /// state may take the same byte.
  Automaton automaton(uint32_t start, uint32_t end, size_t max_states) const;
  size_t size() const { return states_.size(); }

 private:
  struct State {
    std::vector<uint32_t> empty;
    std::vector<ByteEdge> edges;
    std::vector<CallEdge> calls;
  };
  using Subset = std::vector<uint32_t>;  // Sorted.
  using Numbers = std::map<Subset, uint32_t>;
  void close(Subset& subset) const;
  Automaton::State state_of(const Subset& subset,
                            const std::function<uint32_t(Subset)>& number) const;
  std::vector<State> states_;
};

/// The state behind each byte, or kNoState; `automaton` must have one edge for a byte and no calls.
inline constexpr uint32_t kNoState = UINT32_MAX;
uint32_t next_state(const Automaton& automaton, uint32_t state, uint8_t byte);
bool accepts(const Automaton& automaton, std::string_view text);
bool is_empty(const Automaton& automaton);

enum class Combine : uint8_t { kBoth, kFirstOnly };
/// What both accept, or only the first. Both must have one edge for a byte and no calls. Throws
/// InputError above `max_states`.
Automaton combine(const Automaton& first, const Automaton& second, Combine how, size_t max_states);

}  // namespace atl::grammar
