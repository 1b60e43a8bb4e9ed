#include "atoll/grammar/token_masks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <utility>

namespace atl::grammar {
namespace {

constexpr uint64_t kAllClasses = (uint64_t{1} << 45) - 1;
constexpr size_t kFew = 2048;  // Tokens that are kept as a list alone.

/// Bytes that lead from a state to itself, as classes; those of one kind, if it has both.
struct Loop {
  uint64_t classes = 0;
  bool counts = false;
};

Loop loop_of(const Grammar& grammar, uint32_t state) {
  std::array<uint64_t, 2> missing{};  // Classes with a byte that does not loop, by counting.
  for (int byte = 0; byte < 256; ++byte) {
    std::array<bool, 2> loops{};
    for (const ByteEdge& edge : grammar.edges(state)) {
      if (edge.first > byte || edge.last < byte || edge.target != state) continue;
      if (edge.counting != Counting::kNeedsEnough) loops[edge.counting == Counting::kCounts] = true;
    }
    for (const size_t counts : {0, 1}) {
      if (!loops[counts]) missing[counts] |= Vocabulary::class_of(static_cast<uint8_t>(byte));
    }
  }
  if (!grammar.state(state).is_plain) return {};
  return (~missing[0] & kAllClasses) != 0 ? Loop{~missing[0], false} : Loop{~missing[1], true};
}

}  // namespace

size_t TokenMask::count() const {
  size_t count = 0;
  for (const uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
  return count;
}

/// What a state allows whoever called its rule, and what must be looked at with the callers.
struct StateMask {
  /// A node of the vocabulary's tree on the way to an open one.
  struct Way {
    uint32_t node = 0;
    uint32_t end = 0;  // In the list of ways.
    bool is_open = false;
  };
  TokenMask all{0};          // Of `ids`, where they are many.
  std::vector<TokenId> ids;  // Allowed; ordered by how many counting edges of the call they take.
  std::vector<std::pair<uint32_t, size_t>> counts;  // How many, and the end of those in `ids`.
  std::vector<Way> ways;
  uint32_t reach = 0;  // How deep it gets above the state's own depth.

  size_t num_bytes() const {
    return sizeof(*this) + all.words().size() * 8 + ids.size() * sizeof(TokenId) +
           ways.size() * sizeof(Way);
  }

  void keep(const std::vector<std::vector<TokenId>>& by_count, size_t num_tokens) {
    for (uint32_t count = 0; count < by_count.size(); ++count) {
      ids.insert(ids.end(), by_count[count].begin(), by_count[count].end());
      if (by_count.size() > 1) counts.emplace_back(count, ids.size());
    }
    if (ids.size() <= kFew) return;
    all = TokenMask(num_tokens);
    for (const TokenId id : ids) all.allow(id);
    if (counts.empty()) ids = {};
  }

  void add_to(TokenMask& mask, uint32_t left) const {
    if (!all.words().empty() && (counts.empty() || left >= counts.back().first))
      return mask.add(all);
    size_t end = counts.empty() ? ids.size() : 0;
    for (const auto& [count, count_end] : counts) {
      if (count <= left) end = count_end;
    }
    if (all.words().empty() || end < ids.size() / 2) {
      for (size_t i = 0; i < end; ++i) mask.allow(ids[i]);
      return;
    }
    TokenMask part = all;  // All but the few that take too many.
    for (size_t i = end; i < ids.size(); ++i) part.forbid(ids[i]);
    mask.add(part);
  }
};

/// Follows the tree of tokens with a machine: tops and frames of each depth lie on each other.
class TokenMasks::Walk {
 public:
  Walk(const Grammar& grammar, const Vocabulary& vocabulary, Machine::Around around)
      : vocabulary_(vocabulary), machine_(grammar, around), levels_(vocabulary.max_depth() + 1U) {}

  void begin(const Place& place, const Frame& top) {
    machine_.load(place);
    levels_[0] = {{top}, machine_.num_frames()};
  }

  /// Takes the node's byte; false where nothing takes it.
  bool enter(const Vocabulary::Node& node) {
    const Level& before = levels_[node.depth - 1U];
    Level& here = levels_[node.depth];
    machine_.shrink(before.num_frames);
    outcome_ = machine_.step(before.tops, node.byte, here.tops);
    here.num_frames = machine_.num_frames();
    return !here.tops.empty() || outcome_.ended || outcome_.checked;
  }

  /// Allows what fits among nodes whose parent was entered.
  void allow(uint32_t begin, uint32_t end, TokenMask& mask) {
    for (uint32_t i = begin; i < end;) {
      const Vocabulary::Node& node = vocabulary_.nodes()[i];
      if (!enter(node)) {
        i = node.end;
        continue;
      }
      for (const TokenId id : vocabulary_.ids(i, i + 1)) mask.allow(id);
      ++i;
    }
  }

  const Machine::Outcome& outcome() const { return outcome_; }
  Machine& machine() { return machine_; }
  const std::vector<Frame>& tops(uint16_t depth) const { return levels_[depth].tops; }

 private:
  struct Level {
    std::vector<Frame> tops;
    size_t num_frames = 0;
  };
  const Vocabulary& vocabulary_;
  Machine machine_;
  Machine::Outcome outcome_;
  std::vector<Level> levels_;
};

TokenMasks::TokenMasks(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)) {}
TokenMasks::~TokenMasks() = default;

/// Finds what a state allows: a walk over the whole tree, with unknown callers.
class TokenMasks::Search {
 public:
  Search(const Grammar& grammar, const Vocabulary& vocabulary)
      : grammar_(grammar),
        vocabulary_(vocabulary),
        walk_(grammar, vocabulary, Machine::Around::kUnknown) {}

  std::shared_ptr<const StateMask> find(uint32_t state) {
    walk_.begin({}, {state, {0, kCounter}, 0});
    const auto nodes = vocabulary_.nodes();
    for (uint32_t i = 0; i < nodes.size();) {
      const Vocabulary::Node& node = nodes[i];
      path_.resize(node.depth - 1U);
      leave(path_.size());
      if (!walk_.enter(node)) {
        i = node.end;
        continue;
      }
      path_.push_back(i);
      if (walk_.outcome().ended || walk_.outcome().checked) {
        open_way();
        i = node.end;
        continue;
      }
      const uint32_t count = num_counted(node.depth);
      allow(count, i, i + 1);
      ++i;
      if (i < node.end && allow_loop(count, node, i)) i = node.end;
    }
    leave(0);
    result_->reach = walk_.machine().reach();
    result_->keep(allowed_, vocabulary_.size());
    return result_;
  }

 private:
  static constexpr uint32_t kCounter = kNoLimit - 1;  // The caller's: more than any token takes.

  /// How many counting edges of the unknown caller's call were taken, and must be to come to its
  /// end: by the counter of the outermost frame, of the top that needs the fewest.
  uint32_t num_counted(uint16_t depth) {
    uint32_t left = 0;
    for (const Frame& top : walk_.tops(depth)) {
      const Frame* frame = &top;
      while (frame->parent != 0) frame = &walk_.machine().frame(frame->parent);
      left = std::max(left, frame->left.max - grammar_.state(frame->state).owed);
    }
    return kCounter - left;
  }

  void allow(uint32_t count, uint32_t begin, uint32_t end) {
    const auto ids = vocabulary_.ids(begin, end);
    if (allowed_.size() <= count) allowed_.resize(count + size_t{1});
    allowed_[count].insert(allowed_[count].end(), ids.begin(), ids.end());
  }

  /// Allows all below a node where it stays in the state that the node leads to: no need to look.
  bool allow_loop(uint32_t count, const Vocabulary::Node& node, uint32_t begin) {
    if (walk_.tops(node.depth).size() != 1) return false;
    const Frame& top = walk_.tops(node.depth).front();
    const auto [found, is_new] = loops_.try_emplace(top.state);
    if (is_new) found->second = loop_of(grammar_, top.state);
    const Loop& loop = found->second;
    if ((node.bytes & ~loop.classes) != 0) return false;
    if (!loop.counts || top.parent != 0) {
      const uint32_t most = vocabulary_.max_depth() + grammar_.state(top.state).owed;
      if (loop.counts && top.left.max < most) return false;
      allow(count, begin, node.end);
      return true;
    }
    for (uint32_t i = begin; i < node.end; ++i) {
      allow(count + vocabulary_.nodes()[i].depth - node.depth, i, i + 1);
    }
    return true;
  }

  /// What stands below the path's last node, and that, must be looked at with the callers.
  void open_way() {
    for (size_t depth = ways_.size(); depth < path_.size(); ++depth) {
      ways_.push_back(static_cast<uint32_t>(result_->ways.size()));
      result_->ways.push_back({.node = path_[depth]});
    }
    result_->ways.back().is_open = true;
  }
  void leave(size_t depth) {
    for (; ways_.size() > depth; ways_.pop_back()) {
      result_->ways[ways_.back()].end = static_cast<uint32_t>(result_->ways.size());
    }
  }

  const Grammar& grammar_;
  const Vocabulary& vocabulary_;
  Walk walk_;
  std::shared_ptr<StateMask> result_ = std::make_shared<StateMask>();
  std::vector<std::vector<TokenId>> allowed_;  // By how many counting edges they take.
  std::vector<uint32_t> path_;                 // Nodes that were entered, by depth.
  std::vector<uint32_t> ways_;  // Places in the result's ways of the first nodes of the path.
  std::map<uint32_t, Loop> loops_;
};

std::shared_ptr<const StateMask> TokenMasks::of_state(uint32_t state) const {
  KeptMasks& kept = state < grammar_->num_shared() ? vocabulary_->kept() : kept_;
  if (auto found = kept.find(state)) return found;
  auto made = Search(*grammar_, *vocabulary_).find(state);
  kept.keep(state, made, made->num_bytes());
  return made;
}

TokenMask TokenMasks::mask(const Place& place) const {
  TokenMask mask(vocabulary_->size());
  Walk walk(*grammar_, *vocabulary_, Machine::Around::kNothing);
  for (const Frame& top : place.tops) {
    const auto known = of_state(top.state);
    walk.begin(place, top);
    if (place.depths[top.parent] + known->reach > grammar_->max_depth()) {
      // So deep that not all that the state allows fits.
      walk.allow(0, static_cast<uint32_t>(vocabulary_->nodes().size()), mask);
      continue;
    }
    known->add_to(mask, top.left.max);
    for (uint32_t i = 0; i < known->ways.size();) {
      const StateMask::Way& way = known->ways[i];
      const Vocabulary::Node& node = vocabulary_->nodes()[way.node];
      if (!walk.enter(node)) {
        i = way.end;
        continue;
      }
      if (way.is_open) {
        for (const TokenId id : vocabulary_->ids(way.node, way.node + 1)) mask.allow(id);
        walk.allow(way.node + 1, node.end, mask);
      }
      ++i;
    }
  }
  if (place.may_end) {
    for (const TokenId id : vocabulary_->end_ids()) mask.allow(id);
  }
  return mask;
}

}  // namespace atl::grammar
