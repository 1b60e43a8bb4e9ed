#include "atoll/grammar/automaton.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "atoll/base/error.h"
#include "atoll/text/utf8.h"

namespace atl::grammar {
namespace {

constexpr size_t kMaxMembers = 4'000'000;  // Of subsets, before ways are left side by side.
constexpr size_t kMaxEdges = 1'000'000;

/// Puts edges in order and makes one of neighbours that lead to the same state.
void tidy(std::vector<ByteEdge>& edges) {
  std::ranges::sort(edges, [](const ByteEdge& a, const ByteEdge& b) {
    return std::tie(a.first, a.counting, a.target) < std::tie(b.first, b.counting, b.target);
  });
  std::vector<ByteEdge> merged;
  for (const ByteEdge& edge : edges) {
    if (!merged.empty() && merged.back().target == edge.target &&
        merged.back().counting == edge.counting && merged.back().last + 1 == edge.first) {
      merged.back().last = edge.last;
    } else {
      merged.push_back(edge);
    }
  }
  edges = std::move(merged);
}

/// Where to cut a range of characters of equal length so that the bytes of the parts are ranges,
/// each on its own: before a last byte that does not begin or behind one that does not end its
/// block.
std::optional<uint32_t> utf8_cut(uint32_t begin, uint32_t end) {
  if (end < 0x80) return {};
  for (uint32_t low = 0x3f; low < (1U << 18); low = (low << 6) | 0x3f) {
    if ((begin & ~low) == (end & ~low)) return {};
    if ((begin & low) != 0) return (begin | low) + 1;
    if ((end & low) != low) return end & ~low;
  }
  return {};
}

}  // namespace

uint32_t Nfa::add_state() {
  states_.emplace_back();
  return static_cast<uint32_t>(states_.size() - 1);
}

void Nfa::add_bytes(uint32_t from, uint32_t to, uint8_t first, uint8_t last, Counting counting) {
  states_[from].edges.push_back({first, last, counting, to});
}

void Nfa::add_call(uint32_t from, uint32_t to, uint32_t rule, Bounds bounds) {
  states_[from].calls.push_back({rule, bounds, to});
}

uint32_t Nfa::add_text(uint32_t from, std::string_view text) {
  for (const char character : text) {
    const uint32_t next = add_state();
    const auto byte = static_cast<uint8_t>(character);
    add_bytes(from, next, byte, byte);
    from = next;
  }
  return from;
}

void Nfa::add_characters(uint32_t from, uint32_t to, uint32_t first, uint32_t last,
                         Counting counting) {
  // Cut where the number of bytes grows, and around the surrogates, which are no characters.
  constexpr std::array<std::pair<uint32_t, uint32_t>, 5> kPlanes{
      {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, 0x10ffff}}};
  std::vector<std::pair<uint32_t, uint32_t>> open;
  for (const auto& [low, high] : kPlanes) {
    if (std::max(first, low) <= std::min(last, high)) {
      open.emplace_back(std::max(first, low), std::min(last, high));
    }
  }
  while (!open.empty()) {
    const auto [begin, end] = open.back();
    open.pop_back();
    if (const auto cut = utf8_cut(begin, end)) {
      open.emplace_back(begin, *cut - 1);
      open.emplace_back(*cut, end);
      continue;
    }
    std::string lower, upper;
    text::append_utf8(lower, begin);
    text::append_utf8(upper, end);
    uint32_t state = from;
    for (size_t i = 0; i < lower.size(); ++i) {
      const bool is_last = i + 1 == lower.size();
      const uint32_t next = is_last ? to : add_state();
      add_bytes(state, next, static_cast<uint8_t>(lower[i]), static_cast<uint8_t>(upper[i]),
                i == 0 ? counting : Counting::kNone);
      state = next;
    }
  }
}

void Nfa::add_automaton(uint32_t from, uint32_t to, const Automaton& part) {
  const auto base = static_cast<uint32_t>(states_.size());
  states_.resize(states_.size() + part.states.size());
  for (size_t i = 0; i < part.states.size(); ++i) {
    State& state = states_[base + i];
    state.edges = part.states[i].edges;
    state.calls = part.states[i].calls;
    for (ByteEdge& edge : state.edges) edge.target += base;
    for (CallEdge& call : state.calls) call.target += base;
    if (part.states[i].accepts) state.empty.push_back(to);
  }
  add_empty(from, base);
}

void Nfa::close(Subset& subset) const {
  std::vector<uint32_t> open = subset;
  std::vector<bool> seen;
  if (subset.size() > 8) seen.resize(states_.size());
  const auto is_new = [&](uint32_t state) {
    if (seen.empty()) return std::ranges::find(subset, state) == subset.end();
    return !seen[state];
  };
  if (!seen.empty()) {
    for (const uint32_t state : subset) seen[state] = true;
  }
  while (!open.empty()) {
    const uint32_t state = open.back();
    open.pop_back();
    for (const uint32_t next : states_[state].empty) {
      if (!is_new(next)) continue;
      if (!seen.empty()) seen[next] = true;
      subset.push_back(next);
      open.push_back(next);
    }
  }
  std::ranges::sort(subset);
  subset.erase(std::ranges::unique(subset).begin(), subset.end());
}

Automaton::State Nfa::state_of(const Subset& subset,
                               const std::function<uint32_t(Subset)>& number) const {
  Automaton::State result;
  for (const Counting counting : {Counting::kNone, Counting::kCounts, Counting::kNeedsEnough}) {
    std::vector<ByteEdge> edges;
    std::array<bool, 257> cuts{};  // Where the set of edges that take a byte changes.
    for (const uint32_t state : subset) {
      for (const ByteEdge& edge : states_[state].edges) {
        if (edge.counting != counting) continue;
        edges.push_back(edge);
        cuts[edge.first] = cuts[edge.last + size_t{1}] = true;
      }
    }
    if (edges.empty()) continue;
    for (int first = 0; first < 256;) {
      int end = first + 1;
      while (end < 256 && !cuts[static_cast<size_t>(end)]) ++end;
      Subset targets;
      for (const ByteEdge& edge : edges) {
        if (edge.first <= first && first <= edge.last) targets.push_back(edge.target);
      }
      if (!targets.empty()) {
        result.edges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(end - 1),
                                counting, number(std::move(targets))});
      }
      first = end;
    }
  }
  std::map<std::pair<uint32_t, Bounds>, Subset> calls;
  for (const uint32_t state : subset) {
    for (const CallEdge& call : states_[state].calls) {
      calls[{call.rule, call.bounds}].push_back(call.target);
    }
  }
  for (auto& [call, targets] : calls) {
    result.calls.push_back({call.first, call.second, number(std::move(targets))});
  }
  tidy(result.edges);
  return result;
}

Automaton Nfa::automaton(uint32_t start, uint32_t end, size_t max_states) const {
  Automaton result;
  std::deque<Subset> subsets;  // Stay where they are when more come.
  Numbers numbers;
  size_t num_members = 0;  // Of all subsets that were looked at: that is the work.
  const auto number = [&](Subset subset) {
    close(subset);
    num_members += subset.size();
    const auto [found, is_new] = numbers.emplace(subset, static_cast<uint32_t>(subsets.size()));
    if (is_new) subsets.push_back(std::move(subset));
    return found->second;
  };
  number({start});
  const auto is_small = [&] { return subsets.size() <= max_states && num_members <= kMaxMembers; };
  for (size_t i = 0; i < subsets.size() && is_small(); ++i) {
    const Subset& subset = subsets[i];
    result.states.push_back(state_of(subset, number));
    result.states.back().accepts = std::ranges::binary_search(subset, end);
  }
  if (is_small()) return result;

  // Too many subsets: each state stays itself, with what its empty steps lead to.
  result.states.clear();
  std::vector<uint32_t> place(states_.size());
  for (uint32_t i = 0; i < place.size(); ++i) place[i] = i == start ? 0 : i < start ? i + 1 : i;
  result.states.resize(states_.size());
  size_t num_edges = 0;
  for (uint32_t i = 0; i < states_.size(); ++i) {
    Automaton::State& state = result.states[place[i]];
    Subset subset{i};
    close(subset);
    for (const uint32_t member : subset) {
      for (ByteEdge edge : states_[member].edges) {
        edge.target = place[edge.target];
        state.edges.push_back(edge);
      }
      for (CallEdge call : states_[member].calls) {
        call.target = place[call.target];
        state.calls.push_back(call);
      }
      state.accepts |= member == end;
    }
    num_edges += state.edges.size() + state.calls.size();
    if (num_edges > kMaxEdges) {
      throw InputError(
          fmt::format("the schema has over {} ways to go on: too many properties or "
                      "values beside each other",
                      kMaxEdges));
    }
    tidy(state.edges);
  }
  return result;
}

uint32_t next_state(const Automaton& automaton, uint32_t state, uint8_t byte) {
  for (const ByteEdge& edge : automaton.states[state].edges) {
    if (edge.first <= byte && byte <= edge.last) return edge.target;
  }
  return kNoState;
}

bool accepts(const Automaton& automaton, std::string_view text) {
  uint32_t state = 0;
  for (const char byte : text) {
    state = next_state(automaton, state, static_cast<uint8_t>(byte));
    if (state == kNoState) return false;
  }
  return automaton.states[state].accepts;
}

bool is_empty(const Automaton& automaton) {
  std::vector<bool> seen(automaton.states.size());
  std::vector<uint32_t> open{0};
  seen[0] = true;
  while (!open.empty()) {
    const Automaton::State& state = automaton.states[open.back()];
    open.pop_back();
    if (state.accepts) return false;
    for (const ByteEdge& edge : state.edges) {
      if (!seen[edge.target]) open.push_back(edge.target);
      seen[edge.target] = true;
    }
  }
  return true;
}

Automaton combine(const Automaton& first, const Automaton& second, Combine how, size_t max_states) {
  using Pair = std::pair<uint32_t, uint32_t>;  // The second may be kNoState with kFirstOnly.
  std::map<Pair, uint32_t> numbers{{{0, 0}, 0}};
  std::vector<Pair> pairs{{0, 0}};
  Automaton result;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (pairs.size() > max_states) {
      throw InputError(fmt::format("patterns together need over {} states", max_states));
    }
    const auto [a, b] = pairs[i];
    Automaton::State state;
    const bool b_accepts = b != kNoState && second.states[b].accepts;
    state.accepts = first.states[a].accepts && b_accepts == (how == Combine::kBoth);
    for (const ByteEdge& edge : first.states[a].edges) {
      for (int byte = edge.first; byte <= edge.last; ++byte) {
        const auto value = static_cast<uint8_t>(byte);
        const uint32_t other = b == kNoState ? kNoState : next_state(second, b, value);
        if (other == kNoState && how == Combine::kBoth) continue;
        const auto [found, is_new] =
            numbers.emplace(Pair{edge.target, other}, static_cast<uint32_t>(pairs.size()));
        if (is_new) pairs.emplace_back(edge.target, other);
        state.edges.push_back({value, value, edge.counting, found->second});
      }
    }
    tidy(state.edges);
    result.states.push_back(std::move(state));
  }
  return result;
}

}  // namespace atl::grammar
