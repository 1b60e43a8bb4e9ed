#include "atoll/grammar/machine.h"

#include <algorithm>
#include <map>
#include <utility>

namespace atl::grammar {

Machine::Machine(const Grammar& grammar, Around around) : grammar_(grammar), around_(around) {
  load({});
}

void Machine::load(const Place& place) {
  frames_ = place.frames;
  depths_ = place.depths;
  if (frames_.empty()) {
    frames_.emplace_back();
    depths_.push_back(0);
  }
  step_begin_ = frames_.size();
  reach_ = 0;
}

void Machine::shrink(size_t num_frames) {
  if (num_frames == frames_.size()) return;
  frames_.resize(num_frames);
  depths_.resize(num_frames);
}

uint32_t Machine::push(const Frame& frame) {
  for (size_t i = step_begin_; i < frames_.size(); ++i) {
    if (frames_[i] == frame) return static_cast<uint32_t>(i);
  }
  frames_.push_back(frame);
  depths_.push_back(depths_[frame.parent] + 1);
  return static_cast<uint32_t>(frames_.size() - 1);
}

inline void Machine::add(const Frame& top, std::vector<Frame>& tops) {
  const Grammar::State& state = grammar_.state(top.state);
  const uint32_t reach = depths_[top.parent] + state.need;
  if (reach > grammar_.max_depth() || top.left.max < state.owed) return;
  if (tops.size() >= kMaxTops) return;
  if (std::ranges::find(tops, top) != tops.end()) return;
  reach_ = std::max(reach_, reach);
  tops.push_back(top);
}

/// Adds what calls and ends lead to without a byte.
void Machine::close(std::vector<Frame>& tops, Outcome& outcome) {
  bool has_idle = false;
  for (size_t i = 0; i < tops.size(); ++i) {
    const Frame top = tops[i];
    const Grammar::State& state = grammar_.state(top.state);
    if (state.is_plain) continue;
    has_idle |= grammar_.edges(top.state).empty();
    for (const CallEdge& call : grammar_.calls(top.state)) {
      // A call that is the last of its rule needs no frame: its end is the rule's end. Counters of
      // unknown callers must stay the bottom's, though.
      const bool is_last =
          grammar_.state(call.target).is_final && (around_ == Around::kNothing || top.parent != 0);
      const uint32_t parent = is_last ? top.parent : push({call.target, top.left, top.parent});
      add({grammar_.start(call.rule), call.bounds, parent}, tops);
    }
    if (!state.accepts) continue;
    if (top.parent == 0) {
      outcome.ended = true;
    } else {
      add(frames_[top.parent], tops);
    }
  }
  if (has_idle) {
    std::erase_if(tops, [&](const Frame& top) { return grammar_.edges(top.state).empty(); });
  }
}

Machine::Outcome Machine::step(std::span<const Frame> from, uint8_t byte, std::vector<Frame>& to) {
  Outcome outcome;
  step_begin_ = frames_.size();
  to.clear();
  bool is_plain = true;  // Nothing follows without a byte.
  for (const Frame& top : from) {
    for (const ByteEdge& edge : grammar_.edges(top.state)) {
      if (edge.first > byte) break;
      if (edge.last < byte) continue;
      Frame next{edge.target, top.left, top.parent};
      if (edge.counting == Counting::kCounts) {
        if (next.left.max == 0) continue;
        if (next.left.max != kNoLimit) --next.left.max;
        if (next.left.min > 0) --next.left.min;
      } else if (edge.counting == Counting::kNeedsEnough) {
        if (around_ == Around::kUnknown && top.parent == 0) {
          outcome.checked = true;
        } else if (next.left.min > 0) {
          continue;
        }
      }
      is_plain = is_plain && grammar_.state(next.state).is_plain;
      add(next, to);
    }
  }
  if (!is_plain) close(to, outcome);
  return outcome;
}

Place Machine::begin() {
  load({});
  to_.assign(1, {grammar_.root(), {}, 0});
  Outcome outcome;
  close(to_, outcome);
  return place_of(to_, outcome.ended);
}

Place Machine::advance(const Place& place, std::string_view bytes) {
  load(place);
  from_ = place.tops;
  bool may_end = place.may_end;
  for (const char byte : bytes) {
    may_end = step(from_, static_cast<uint8_t>(byte), to_).ended;
    std::swap(from_, to_);
  }
  return place_of(from_, may_end);
}

/// Keeps the frames that `tops` need, each once, so that equal places have equal values.
Place Machine::place_of(std::span<const Frame> tops, bool may_end) const {
  Place place{.may_end = may_end};
  place.frames.emplace_back();
  place.depths.push_back(0);
  std::map<Frame, uint32_t> numbers;
  std::vector<uint32_t> renamed(frames_.size(), UINT32_MAX);
  renamed[0] = 0;
  std::vector<uint32_t> path;
  for (Frame top : tops) {
    path.clear();
    for (uint32_t i = top.parent; renamed[i] == UINT32_MAX; i = frames_[i].parent)
      path.push_back(i);
    for (; !path.empty(); path.pop_back()) {
      Frame frame = frames_[path.back()];
      frame.parent = renamed[frame.parent];
      const auto [found, is_new] =
          numbers.emplace(frame, static_cast<uint32_t>(place.frames.size()));
      if (is_new) {
        place.frames.push_back(frame);
        place.depths.push_back(place.depths[frame.parent] + 1);
      }
      renamed[path.back()] = found->second;
    }
    top.parent = renamed[top.parent];
    if (std::ranges::find(place.tops, top) == place.tops.end()) place.tops.push_back(top);
  }
  return place;
}

}  // namespace atl::grammar
