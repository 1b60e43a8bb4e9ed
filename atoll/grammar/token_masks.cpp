#include "atoll/grammar/token_masks.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace atl::grammar {
namespace {

constexpr size_t kMaxKeptBytes = size_t{1} << 27;  // 128 MiB; above, all is found again.
constexpr size_t kFew = 2048;                      // Tokens that are kept as a list alone.

}  // namespace

size_t TokenMask::count() const {
  size_t count = 0;
  for (const uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
  return count;
}

/// What a state allows whoever called its rule, and what must be looked at with the callers.
struct TokenMasks::OfState {
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

  void add_to(TokenMask& mask, uint32_t left) const {
    if (!all.words().empty() && (counts.empty() || left >= counts.back().first))
      return mask.add(all);
    size_t end = counts.empty() ? ids.size() : 0;
    for (const auto& [count, count_end] : counts) {
      if (count <= left) end = count_end;
    }
    for (size_t i = 0; i < end; ++i) mask.allow(ids[i]);
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

std::shared_ptr<const TokenMasks::OfState> TokenMasks::of_state(uint32_t state) const {
  {
    const MutexLock lock(mutex_);
    const auto found = kept_.find(state);
    if (found != kept_.end()) return found->second;
  }
  auto made = find_of_state(state);
  const MutexLock lock(mutex_);
  if (kept_bytes_ > kMaxKeptBytes) {
    kept_.clear();
    kept_bytes_ = 0;
  }
  if (kept_.emplace(state, made).second) kept_bytes_ += made->num_bytes();
  return made;
}

std::shared_ptr<const TokenMasks::OfState> TokenMasks::find_of_state(uint32_t state) const {
  constexpr uint32_t kCounter = kNoLimit - 1;  // The unknown caller's: more than any token takes.
  auto result = std::make_shared<OfState>();
  Walk walk(*grammar_, *vocabulary_, Machine::Around::kUnknown);
  walk.begin({}, {state, {0, kCounter}, 0});
  // How many counting edges of the unknown caller's call were taken, and must be to come to its
  // end: by the counter of the outermost frame, of the top that needs the fewest.
  const auto num_counted = [&](uint16_t depth) {
    uint32_t left = 0;
    for (const Frame& top : walk.tops(depth)) {
      const Frame* frame = &top;
      while (frame->parent != 0) frame = &walk.machine().frame(frame->parent);
      left = std::max(left, frame->left.max - grammar_->state(frame->state).owed);
    }
    return kCounter - left;
  };
  std::vector<std::pair<uint32_t, TokenId>> allowed;
  std::vector<uint32_t> path;  // Nodes that were entered, by depth.
  std::vector<uint32_t> ways;  // Places in result->ways of the first nodes of the path.
  const auto nodes = vocabulary_->nodes();
  const auto leave = [&](size_t depth) {
    for (; ways.size() > depth; ways.pop_back()) {
      result->ways[ways.back()].end = static_cast<uint32_t>(result->ways.size());
    }
  };
  for (uint32_t i = 0; i < nodes.size();) {
    const Vocabulary::Node& node = nodes[i];
    path.resize(node.depth - 1U);
    leave(std::min<size_t>(ways.size(), path.size()));
    if (!walk.enter(node)) {
      i = node.end;
      continue;
    }
    path.push_back(i);
    if (walk.outcome().ended || walk.outcome().checked) {
      for (size_t depth = ways.size(); depth < path.size(); ++depth) {
        ways.push_back(static_cast<uint32_t>(result->ways.size()));
        result->ways.push_back({.node = path[depth]});
      }
      result->ways.back().is_open = true;
      i = node.end;
      continue;
    }
    const auto ids = vocabulary_->ids(i, i + 1);
    if (!ids.empty()) {
      const uint32_t count = num_counted(node.depth);
      for (const TokenId id : ids) allowed.emplace_back(count, id);
    }
    ++i;
  }
  leave(0);
  result->reach = walk.machine().reach();
  std::ranges::sort(allowed);
  for (const auto& [count, id] : allowed) {
    if (count > 0 && (result->counts.empty() || result->counts.back().first != count)) {
      if (result->counts.empty()) result->counts.emplace_back(0, result->ids.size());
      result->counts.emplace_back(count, 0);
    }
    result->ids.push_back(id);
    if (!result->counts.empty()) result->counts.back().second = result->ids.size();
  }
  if (result->ids.size() > kFew) {
    result->all = TokenMask(vocabulary_->size());
    for (const TokenId id : result->ids) result->all.allow(id);
    if (result->counts.empty()) result->ids = {};
  }
  result->ids.shrink_to_fit();
  return result;
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
      const OfState::Way& way = known->ways[i];
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
